/* What attentive.py asks of products of filters and planes, on a processor: their means and maxima,
   and what attention removes. A product lives in registers, and what is made of the products of a
   filter in the cache: a backward pass makes it again.

   b samples, q poses, i channels of the input, n filters, K = k*k entries of a window, (h, w) a
   plane, (oh, ow) what comes of it; the attention of places has filters of A = a*a entries.
   x (b, q, i, h, w), planes anywhere   filters (q, i, n, K), or of each sample (b, q, i, n, K)
   gate, of sum and maximum, (2, q, n, A)   y (b, n, oh, ow)
   The stride is 1, a is odd, `pad` at most the reach of a window, and oh, ow at least 1. REAL, float
   or double, is set by who compiles. */
#include "tasks.h"

/* ---- planes with a rim of zeros, whose lines are whole vectors */

typedef struct { long rows, line, step, size; } Frame;   /* what is computed; how it is stored */

static long whole_vectors(long x) { return (x + LANES - 1)/LANES*LANES; }

static Frame frame(long rows, long columns, long widest, long reach) {
    Frame f = {rows, whole_vectors(columns), whole_vectors(widest) + reach, 0};
    f.size = (rows + reach)*f.step;
    return f;
}

static void pad_plane(const Frame *f, real *to, const real *from, long h, long w, long rim) {
    memset(to, 0, f->size*sizeof(real));
    for (long y = 0; y < h; y++)
        memcpy(to + (y + rim)*f->step + rim, from + y*w, w*sizeof(real));
}

/* the widths of windows that a compiler sees as numbers: it unrolls their loops */
#define BY_WINDOW(k, d, call) \
    if (k == 3 && d == 1) { call(3, 1); } else if (k == 3) { call(3, d); } \
    else if (k == 5 && d == 1) { call(5, 1); } else if (k == 5) { call(5, d); } \
    else if (k == 7 && d == 1) { call(7, 1); } else if (k == 7) { call(7, d); } \
    else { call(k, d); }

/* turned by 180°, as a gradient meets it */
static const real *turned(real *to, const real *filter, long K) {
    for (long p = 0; p < K; p++) to[p] = filter[K - 1 - p];
    return to;
}

static real total_of(vec x) {
    real sum = 0;
    for (int l = 0; l < LANES; l++) sum += x[l];
    return sum;
}

/* ---- one filter on one plane, and its gradient */

/* adds to `out`, lines without a rim */
INLINE void correlate_block(const real *plane, long step, const real *w, long k, long d,
                            real *out, long of_out, int rows, int vectors) {
    vec sum[4];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r*vectors + v] = load(out + r*of_out + v*LANES);
    for (long ky = 0; ky < k; ky++, plane += step*d)
        for (long kx = 0; kx < k; kx++)
            for (int r = 0; r < rows; r++)
                for (int v = 0; v < vectors; v++)
                    sum[r*vectors + v] += w[ky*k + kx]*load(plane + kx*d + r*step + v*LANES);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            *(vec *)(out + r*of_out + v*LANES) = sum[r*vectors + v];
}

INLINE void correlate_all(const Frame *f, const real *plane, const real *w, long k, long d,
                          real *out) {
    long y = 0, step = f->step, line = f->line;
    for (; y + 2 <= f->rows; y += 2) {
        const real *from = plane + y*step;
        real *to = out + y*line;
        long x = 0;
        for (; x + 2*LANES <= line; x += 2*LANES)
            correlate_block(from + x, step, w, k, d, to + x, line, 2, 2);
        if (x < line) correlate_block(from + x, step, w, k, d, to + x, line, 2, 1);
    }
    if (y < f->rows)
        for (long x = 0; x < line; x += LANES)
            correlate_block(plane + y*step + x, step, w, k, d, out + y*line + x, line, 1, 1);
}

static void correlate(const Frame *f, const real *plane, const real *w, long k, long d, real *out) {
#define CALL(K, D) correlate_all(f, plane, w, K, D, out)
    BY_WINDOW(k, d, CALL)
#undef CALL
}

/* adds to `sums`, a vector for each entry of the filter; in g, lines with a step of their own, zeros
   follow each row. Some rows of the filter at once. */
INLINE void gradient_rows(const Frame *f, const real *plane, const real *g, long of_g,
                          long k, long d, long rows, vec *sums) {
    vec sum[9];
    for (long p = 0; p < rows*k; p++) sum[p] = sums[p];
    for (long y = 0; y < f->rows; y++)
        for (long x = 0; x < f->line; x += LANES) {
            vec of_place = load(g + y*of_g + x);
            const real *from = plane + y*f->step + x;
            for (long ky = 0; ky < rows; ky++)
                for (long kx = 0; kx < k; kx++)
                    sum[ky*k + kx] += of_place*load(from + ky*d*f->step + kx*d);
        }
    for (long p = 0; p < rows*k; p++) sums[p] = sum[p];
}

static void gradient(const Frame *f, const real *plane, const real *g, long of_g, long k, long d,
                     vec *sums) {
    if (k == 3) {
        if (d == 1) gradient_rows(f, plane, g, of_g, 3, 1, 3, sums);
        else gradient_rows(f, plane, g, of_g, 3, d, 3, sums);
        return;
    }
    for (long ky = 0; ky < k; ky++, plane += d*f->step, sums += k) {
        if (k == 5) gradient_rows(f, plane, g, of_g, 5, d, 1, sums);
        else if (k == 7) gradient_rows(f, plane, g, of_g, 7, d, 1, sums);
        else
            for (long kx = 0; kx < k; kx++)
                gradient_rows(f, plane + kx*d, g, of_g, 1, 1, 1, sums + kx);
    }
}

/* ---- the plan of a call */

typedef struct {
    const real *filters, *x, *gate, *of_y, *of_mean, *of_top;
    real *y, *mean, *top, *of_filters, *of_x, *of_gate;
    int *place;
    long b, q, i, n, h, w, k, dilation, pad;
    long sample, pose, channel;             /* steps of x, from plane to plane */
    long a, gate_dilation, threads;
    struct {
        long K, A, oh, ow, places, reach, rim, lines;
        Frame in, back, seen;               /* of x, of a gradient that goes back to x, of the gate */
    };
} Form;
const long form_size = sizeof(Form);

static void complete(Form *f) {
    f->K = f->k*f->k;
    f->A = f->a*f->a;
    f->reach = (f->k - 1)*f->dilation;
    f->rim = f->a/2*f->gate_dilation;
    f->oh = f->h + 2*f->pad - f->reach;
    f->ow = f->w + 2*f->pad - f->reach;
    f->places = f->oh*f->ow;
    f->in = frame(f->oh, f->ow, f->ow, f->reach);
    f->back = frame(f->h, f->w, f->w > f->ow ? f->w : f->ow, f->reach);
    f->seen = frame(f->oh, f->ow, f->ow, 2*f->rim);
    f->lines = f->oh*f->in.line;
}

static void pad_planes(const Form *f, real *to, long b, long q) {
    const real *from = f->x + b*f->sample + q*f->pose;
    for (long c = 0; c < f->i; c++)
        pad_plane(&f->in, to + c*f->in.size, from + c*f->channel, f->h, f->w, f->pad);
}

/* ---- mean and maximum of products, (b, q, i, n), and the place of the maximum */

enum { PEAKS = 8 };   /* filters at once */

INLINE void peaks_block(const Form *f, const real *plane, const real *filters, long out,
                        long k, long d, int many) {
    vec best[PEAKS];
    bits where[PEAKS] = {0}, lane;
    for (int l = 0; l < LANES; l++) lane[l] = l;
    for (int j = 0; j < many; j++) best[j] = all(-(real)__builtin_inf());
    for (long y = 0; y < f->oh; y++)
        for (long x = 0; x < f->ow; x += LANES) {
            bits here = lane + (whole)(y*f->ow + x), inside = lane < (bits){0} + (whole)(f->ow - x);
            vec z[PEAKS] = {0};
            for (long ky = 0; ky < k; ky++)
                for (long kx = 0; kx < k; kx++) {
                    vec of_place = load(plane + (y + ky*d)*f->in.step + x + kx*d);
                    for (int j = 0; j < many; j++)
                        z[j] += filters[(j*k + ky)*k + kx]*of_place;
                }
            for (int j = 0; j < many; j++) {
                bits wins = (z[j] > best[j]) & inside;
                best[j] = select_(wins, z[j], best[j]);
                where[j] = (wins & here) | (~wins & where[j]);
            }
        }
    for (int j = 0; j < many; j++) {
        int first = 0;   /* of those that tie */
        for (int l = 1; l < LANES; l++)
            if (best[j][l] > best[j][first]
                || (best[j][l] == best[j][first] && where[j][l] < where[j][first])) first = l;
        f->place[out + j] = where[j][first];
        f->top[out + j] = best[j][first];
    }
}

INLINE void peaks_all(const Form *f, const real *plane, const real *filters, long out,
                      long k, long d) {
    long n = 0;
    for (; n + PEAKS <= f->n; n += PEAKS)
        peaks_block(f, plane, filters + n*k*k, out + n, k, d, PEAKS);
    for (; n < f->n; n++) peaks_block(f, plane, filters + n*k*k, out + n, k, d, 1);
}

static long entry(const Form *f, long p) { return (p/f->k*f->in.step + p % f->k)*f->dilation; }

/* the mean over all places of what each entry of the window meets */
static void window_means(const Form *f, const real *plane, real *means) {
    for (long p = 0; p < f->K; p++) {
        real sum = 0;
        for (long y = 0; y < f->oh; y++) {
            const real *row = plane + entry(f, p) + y*f->in.step;
            real of_row = 0;
            for (long x = 0; x < f->ow; x++) of_row += row[x];
            sum += of_row;
        }
        means[p] = sum/f->places;
    }
}

typedef struct {
    real *plane, *of_plane;   /* padded */
    real *means, *of_means;   /* of each entry */
} OfPlane;

static OfPlane lay_out_plane(const Form *f, Space *s) {
    OfPlane r;
    r.plane = TAKE(s, f->in.size, real);
    r.of_plane = TAKE(s, f->in.size, real);
    r.means = TAKE(s, f->K, real);
    r.of_means = TAKE(s, f->K, real);
    return r;
}

/* a task is a plane */
static void statistics_task(const void *form, long task, Space space) {
    const Form *f = form;
    OfPlane r = lay_out_plane(f, &space);
    long c = task % f->i, q = task/f->i % f->q, b = task/f->i/f->q, out = task*f->n;
    const real *filters = f->filters + (q*f->i + c)*f->n*f->K;
    pad_plane(&f->in, r.plane, f->x + b*f->sample + q*f->pose + c*f->channel, f->h, f->w, f->pad);
#define CALL(K, D) peaks_all(f, r.plane, filters, out, K, D)
    BY_WINDOW(f->k, f->dilation, CALL)
#undef CALL
    window_means(f, r.plane, r.means);
    for (long n = 0; n < f->n; n++) {
        real mean = 0;
        for (long p = 0; p < f->K; p++) mean += filters[n*f->K + p]*r.means[p];
        f->mean[out + n] = mean;
    }
}

/* a task is a channel in a pose: the gradient of its filters is a sum over samples */
static void statistics_backward_task(const void *form, long task, Space space) {
    const Form *f = form;
    OfPlane r = lay_out_plane(f, &space);
    long q = task/f->i, c = task % f->i, step = f->in.step;
    const real *filters = f->filters + task*f->n*f->K;
    real *of_filters = f->of_filters + task*f->n*f->K;
    memset(of_filters, 0, f->n*f->K*sizeof(real));
    for (long b = 0; b < f->b; b++) {
        long of_plane = (b*f->q + q)*f->i + c;
        const real *of_mean = f->of_mean + of_plane*f->n, *of_top = f->of_top + of_plane*f->n;
        const int *place = f->place + of_plane*f->n;
        pad_plane(&f->in, r.plane, f->x + b*f->sample + q*f->pose + c*f->channel, f->h, f->w,
                  f->pad);
        window_means(f, r.plane, r.means);
        memset(r.of_plane, 0, f->in.size*sizeof(real));
        memset(r.of_means, 0, f->K*sizeof(real));
        for (long n = 0; n < f->n; n++) {
            long corner = place[n]/f->ow*step + place[n] % f->ow;
            for (long p = 0; p < f->K; p++) {
                long i = n*f->K + p, at = corner + entry(f, p);
                of_filters[i] += of_top[n]*r.plane[at] + of_mean[n]*r.means[p];
                r.of_plane[at] += of_top[n]*filters[i];
                r.of_means[p] += of_mean[n]*filters[i];
            }
        }
        for (long p = 0; p < f->K; p++)
            for (long y = 0; y < f->oh; y++) {
                real *row = r.of_plane + entry(f, p) + y*step, share = r.of_means[p]/f->places;
                for (long x = 0; x < f->ow; x++) row[x] += share;
            }
        for (long y = 0; y < f->h; y++)
            memcpy(f->of_x + (of_plane*f->h + y)*f->w, r.of_plane + (y + f->pad)*step + f->pad,
                   f->w*sizeof(real));
    }
}

/* ---- what attention removes: the sum over poses of weights times the sum of products. The weights
   are a sigmoid of the sum and the maximum, each seen through a filter of its own. */

typedef struct {          /* of one filter in a pose */
    real *total, *top;    /* over the input channels, with a rim */
    whole *winner;        /* the channel of the maximum, from 1: lines */
    real *weights;        /* lines */
} Seen;

static Seen lay_out_seen(const Form *f, Space *s) {
    Seen r;
    r.total = TAKE(s, f->seen.size, real);
    r.top = TAKE(s, f->seen.size, real);
    r.winner = TAKE(s, f->lines, whole);
    r.weights = TAKE(s, f->lines, real);
    return r;
}
static void clear_rims(const Form *f, const Seen *s) {
    memset(s->total, 0, f->seen.size*sizeof(real));
    memset(s->top, 0, f->seen.size*sizeof(real));
}

INLINE void sum_and_max_block(const Form *f, const real *planes, const real *filters, const Seen *to,
                              long y, long x, long k, long d, int vectors) {
    vec total[3] = {0}, top[3];
    bits winner[3] = {0};
    for (int v = 0; v < vectors; v++) top[v] = all(-(real)__builtin_inf());
    for (long c = 0; c < f->i; c++) {
        const real *plane = planes + c*f->in.size + y*f->in.step + x, *of_c = filters + c*f->n*k*k;
        bits number = (bits){0} + (whole)(c + 1);
        vec z[3] = {0};
        for (long ky = 0; ky < k; ky++, plane += f->in.step*d)
            for (long kx = 0; kx < k; kx++)
                for (int v = 0; v < vectors; v++)
                    z[v] += of_c[ky*k + kx]*load(plane + kx*d + v*LANES);
        for (int v = 0; v < vectors; v++) {
            bits wins = z[v] >= top[v];   /* the last of those that tie */
            total[v] += z[v];
            top[v] = select_(wins, z[v], top[v]);
            winner[v] = (wins & number) | (~wins & winner[v]);
        }
    }
    for (int v = 0; v < vectors; v++) {
        long i = y*f->in.line + x + v*LANES, left = f->ow - x - v*LANES;
        long j = (y + f->rim)*f->seen.step + f->rim + x + v*LANES;
        store(to->total + j, total[v], left);
        store(to->top + j, top[v], left);
        memcpy(to->winner + i, &winner[v], sizeof(bits));
    }
}

INLINE void sum_and_max_all(const Form *f, const real *planes, const real *filters, const Seen *to,
                            long k, long d) {
    for (long y = 0; y < f->oh; y++)
        for (long x = 0, left = f->in.line/LANES; left > 0;) {
            int many = left == 4 || left == 2 ? 2 : left == 1 ? 1 : 3;
            if (many == 3) sum_and_max_block(f, planes, filters, to, y, x, k, d, 3);
            else if (many == 2) sum_and_max_block(f, planes, filters, to, y, x, k, d, 2);
            else sum_and_max_block(f, planes, filters, to, y, x, k, d, 1);
            left -= many;
            x += many*LANES;
        }
}

INLINE vec sigmoid(vec x) {
    bits positive = x > all(0);
    vec e = exponential(select_(positive, -x, x)), s = select_(positive, all(1), e)/(1 + e);
    return select_(x == x, s, x);
}

static const real *gate_of(const Form *f, int top, long q, long n) {
    return f->gate + ((top*f->q + q)*f->n + n)*f->A;
}

/* sum, maximum and weights of one filter, from the padded planes of a pose */
static void see(const Form *f, const real *planes, long b, long q, long n, const Seen *to) {
    const real *filters = f->filters + ((b*f->q + q)*f->i*f->n + n)*f->K;
#define CALL(K, D) sum_and_max_all(f, planes, filters, to, K, D)
    BY_WINDOW(f->k, f->dilation, CALL)
#undef CALL
    memset(to->weights, 0, f->lines*sizeof(real));
    correlate(&f->seen, to->total, gate_of(f, 0, q, n), f->a, f->gate_dilation, to->weights);
    correlate(&f->seen, to->top, gate_of(f, 1, q, n), f->a, f->gate_dilation, to->weights);
    for (vec *v = (vec *)to->weights; v < (vec *)(to->weights + f->lines); v++) *v = sigmoid(*v);
}

enum { FILTERS = 8 };   /* of a sample, in a task: they share its planes */

typedef struct { real *planes, *sum; Seen seen; } Forward;   /* of all poses; lines */

static Forward lay_out_forward(const Form *f, Space *s) {
    Forward r;
    r.planes = TAKE(s, f->q*f->i*f->in.size, real);
    r.sum = TAKE(s, f->lines, real);
    r.seen = lay_out_seen(f, s);
    return r;
}

static void removed_task(const void *form, long task, Space space) {
    const Form *f = form;
    Forward r = lay_out_forward(f, &space);
    long blocks = (f->n + FILTERS - 1)/FILTERS, b = task/blocks, first = task % blocks*FILTERS;
    long inner = f->rim*f->seen.step + f->rim, of_pose = f->i*f->in.size;
    clear_rims(f, &r.seen);
    for (long q = 0; q < f->q; q++) pad_planes(f, r.planes + q*of_pose, b, q);
    for (long n = first; n < f->n && n < first + FILTERS; n++) {
        memset(r.sum, 0, f->lines*sizeof(real));
        for (long q = 0; q < f->q; q++) {
            see(f, r.planes + q*of_pose, b, q, n, &r.seen);
            for (long y = 0; y < f->oh; y++)
                for (long x = 0; x < f->in.line; x += LANES) {
                    long i = y*f->in.line + x;
                    vec total = load(r.seen.total + inner + y*f->seen.step + x);
                    *(vec *)(r.sum + i) += load(r.seen.weights + i)*total;
                }
        }
        for (long y = 0; y < f->oh; y++)
            memcpy(f->y + (b*f->n + n)*f->places + y*f->ow, r.sum + y*f->in.line,
                   f->ow*sizeof(real));
    }
}

typedef struct {
    real *planes, *of_planes;          /* of a pose; `of_planes` are the inner lines of `back` */
    real *of_y, *of_total, *of_top;    /* of a filter: lines */
    real *of_scores, *of_z;            /* of a filter: with the rims of `seen` and of `back` */
    real *filter;                      /* turned: K or A entries */
    vec *sums;                         /* of each entry */
    Seen seen;
} Backward;

static Backward lay_out_backward(const Form *f, Space *s) {
    long entries = f->K > f->A ? f->K : f->A;
    Backward r;
    r.planes = TAKE(s, f->i*f->in.size, real);
    r.of_planes = TAKE(s, f->i*f->h*f->back.line, real);
    r.of_y = TAKE(s, f->lines, real);
    r.of_total = TAKE(s, f->lines, real);
    r.of_top = TAKE(s, f->lines, real);
    r.of_scores = TAKE(s, f->seen.size, real);
    r.of_z = TAKE(s, f->back.size, real);
    r.filter = TAKE(s, entries, real);
    r.sums = TAKE(s, entries, vec);
    r.seen = lay_out_seen(f, s);
    return r;
}

/* back through the weights, from `of_y`, in whose lines zeros follow each row */
static void through_weights(const Form *f, const Backward *r, long b, long q, long n) {
    long inner = f->rim*f->seen.step + f->rim;
    for (long y = 0; y < f->oh; y++)
        for (long x = 0; x < f->in.line; x += LANES) {
            long i = y*f->in.line + x, j = inner + y*f->seen.step + x;
            vec s = load(r->seen.weights + i), of_total = load(r->of_y + i)*s;
            *(vec *)(r->of_scores + j) = of_total*(1 - s)*load(r->seen.total + j);
            *(vec *)(r->of_total + i) = of_total;
        }
    memset(r->of_top, 0, f->lines*sizeof(real));
    for (int top = 0; top < 2; top++) {
        real *to = top ? r->of_top : r->of_total;
        real *out = f->of_gate + (((b*2 + top)*f->q + q)*f->n + n)*f->A;
        for (long p = 0; p < f->A; p++) r->sums[p] = all(0);
        gradient(&f->seen, top ? r->seen.top : r->seen.total, r->of_scores + inner, f->seen.step,
                 f->a, f->gate_dilation, r->sums);
        for (long p = 0; p < f->A; p++) out[p] = total_of(r->sums[p]);
        correlate(&f->seen, r->of_scores, turned(r->filter, gate_of(f, top, q, n), f->A), f->a,
                  f->gate_dilation, to);
        for (long y = 0; y < f->oh; y++)
            memset(to + y*f->in.line + f->ow, 0, (f->in.line - f->ow)*sizeof(real));
    }
}

/* the gradient of one filter's products with channel c, with the rim of `back` */
static void of_products(const Form *f, const Backward *r, long c, real *to) {
    bits number = (bits){0} + (whole)(c + 1), of_place;
    for (long y = 0; y < f->oh; y++)
        for (long x = 0; x < f->in.line; x += LANES) {
            long i = y*f->in.line + x;
            memcpy(&of_place, r->seen.winner + i, sizeof of_place);
            vec won = select_(of_place == number, load(r->of_top + i), all(0));
            *(vec *)(to + y*f->back.step + x) = load(r->of_total + i) + won;
        }
}

/* a task is a pose of a sample */
static void backward_task(const void *form, long task, Space space) {
    const Form *f = form;
    const Frame *in = &f->in, *back = &f->back;
    Backward r = lay_out_backward(f, &space);
    long b = task/f->q, q = task % f->q, plane = f->h*back->line, corner = f->reach - f->pad;
    real *inside = r.of_z + corner*back->step + corner;   /* its rim */
    memset(r.of_planes, 0, f->i*plane*sizeof(real));
    memset(r.of_y, 0, f->lines*sizeof(real));
    memset(r.of_scores, 0, f->seen.size*sizeof(real));
    memset(r.of_z, 0, back->size*sizeof(real));
    clear_rims(f, &r.seen);
    pad_planes(f, r.planes, b, q);
    for (long n = 0; n < f->n; n++) {
        for (long y = 0; y < f->oh; y++)
            memcpy(r.of_y + y*in->line, f->of_y + (b*f->n + n)*f->places + y*f->ow,
                   f->ow*sizeof(real));
        see(f, r.planes, b, q, n, &r.seen);
        through_weights(f, &r, b, q, n);
        for (long c = 0; c < f->i; c++) {
            long filter = ((task*f->i + c)*f->n + n)*f->K;
            for (long p = 0; p < f->K; p++) r.sums[p] = all(0);
            of_products(f, &r, c, inside);
            gradient(in, r.planes + c*in->size, inside, back->step, f->k, f->dilation, r.sums);
            for (long p = 0; p < f->K; p++) f->of_filters[filter + p] = total_of(r.sums[p]);
            correlate(back, r.of_z, turned(r.filter, f->filters + filter, f->K), f->k, f->dilation,
                      r.of_planes + c*plane);
        }
    }
    real *out = f->of_x + task*f->i*f->h*f->w;
    for (long c = 0; c < f->i; c++)
        for (long y = 0; y < f->h; y++, out += f->w)
            memcpy(out, r.of_planes + c*plane + y*back->line, f->w*sizeof(real));
}

/* ---- what Python calls. Not 0 if memory ran out. */

int pair_statistics(Form *f) {
    Space counted = {0};
    complete(f);
    lay_out_plane(f, &counted);
    return run(f, statistics_task, f->b*f->q*f->i, counted, f->threads);
}

int pair_statistics_backward(Form *f) {
    Space counted = {0};
    complete(f);
    lay_out_plane(f, &counted);
    return run(f, statistics_backward_task, f->q*f->i, counted, f->threads);
}

int pair_removed(Form *f) {
    Space counted = {0};
    complete(f);
    lay_out_forward(f, &counted);
    return run(f, removed_task, f->b*((f->n + FILTERS - 1)/FILTERS), counted, f->threads);
}

/* of_gate (b, 2, q, n, A): the sum over samples is left to who calls */
int pair_removed_backward(Form *f) {
    Space counted = {0};
    complete(f);
    lay_out_backward(f, &counted);
    return run(f, backward_task, f->b*f->q, counted, f->threads);
}
