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
    long b, q, i, n, h, w, k, dilation, pad;
    long sample, pose, channel;         /* steps of x, from plane to plane */
    long a, gate_dilation;
    long K, A, oh, ow, places, reach, rim, lines;
    const real *filters, *x, *gate, *of_y, *of_mean, *of_top;
    real *y, *mean, *top, *of_filters, *of_x, *of_gate;
    int *place;
    Frame in, back, seen;               /* of x, of a gradient that goes back to x, of the gate */
} Form;

static Form form_of(const real *filters, const real *x, const real *gate, const long *sizes) {
    Form f = {.filters = filters, .x = x, .gate = gate};
    long *const fields[] = {&f.b, &f.q, &f.i, &f.n, &f.h, &f.w, &f.k, &f.dilation, &f.pad,
                            &f.sample, &f.pose, &f.channel, &f.a, &f.gate_dilation};
    for (int i = 0; i < 14; i++) *fields[i] = sizes[i];
    f.K = f.k*f.k;
    f.A = f.a*f.a;
    f.reach = (f.k - 1)*f.dilation;
    f.rim = f.a/2*f.gate_dilation;
    f.oh = f.h + 2*f.pad - f.reach;
    f.ow = f.w + 2*f.pad - f.reach;
    f.places = f.oh*f.ow;
    f.in = frame(f.oh, f.ow, f.ow, f.reach);
    f.back = frame(f.h, f.w, f.w > f.ow ? f.w : f.ow, f.reach);
    f.seen = frame(f.oh, f.ow, f.ow, 2*f.rim);
    f.lines = f.oh*f.in.line;
    return f;
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

/* a task is a plane */
static void statistics_task(const void *form, long task, real *room) {
    const Form *f = form;
    long c = task % f->i, q = task/f->i % f->q, b = task/f->i/f->q, out = task*f->n;
    const real *filters = f->filters + (q*f->i + c)*f->n*f->K;
    real means[f->K];
    pad_plane(&f->in, room, f->x + b*f->sample + q*f->pose + c*f->channel, f->h, f->w, f->pad);
#define CALL(K, D) peaks_all(f, room, filters, out, K, D)
    BY_WINDOW(f->k, f->dilation, CALL)
#undef CALL
    window_means(f, room, means);
    for (long n = 0; n < f->n; n++) {
        real mean = 0;
        for (long p = 0; p < f->K; p++) mean += filters[n*f->K + p]*means[p];
        f->mean[out + n] = mean;
    }
}

/* a task is a channel in a pose: the gradient of its filters is a sum over samples */
static void statistics_backward_task(const void *form, long task, real *room) {
    const Form *f = form;
    long q = task/f->i, c = task % f->i, step = f->in.step;
    const real *filters = f->filters + task*f->n*f->K;
    real *of_padded = room + f->in.size, *of_filters = f->of_filters + task*f->n*f->K;
    real means[f->K], of_means[f->K];
    memset(of_filters, 0, f->n*f->K*sizeof(real));
    for (long b = 0; b < f->b; b++) {
        long of_plane = (b*f->q + q)*f->i + c;
        const real *of_mean = f->of_mean + of_plane*f->n, *of_top = f->of_top + of_plane*f->n;
        const int *place = f->place + of_plane*f->n;
        pad_plane(&f->in, room, f->x + b*f->sample + q*f->pose + c*f->channel, f->h, f->w, f->pad);
        window_means(f, room, means);
        memset(of_padded, 0, f->in.size*sizeof(real));
        memset(of_means, 0, sizeof of_means);
        for (long n = 0; n < f->n; n++) {
            long corner = place[n]/f->ow*step + place[n] % f->ow;
            for (long p = 0; p < f->K; p++) {
                long i = n*f->K + p, at = corner + entry(f, p);
                of_filters[i] += of_top[n]*room[at] + of_mean[n]*means[p];
                of_padded[at] += of_top[n]*filters[i];
                of_means[p] += of_mean[n]*filters[i];
            }
        }
        for (long p = 0; p < f->K; p++)
            for (long y = 0; y < f->oh; y++) {
                real *row = of_padded + entry(f, p) + y*step, share = of_means[p]/f->places;
                for (long x = 0; x < f->ow; x++) row[x] += share;
            }
        for (long y = 0; y < f->h; y++)
            memcpy(f->of_x + (of_plane*f->h + y)*f->w, of_padded + (y + f->pad)*step + f->pad,
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

static Seen seen_in(const Form *f, real *room) {
    long size = f->seen.size;
    memset(room, 0, 2*size*sizeof(real));
    return (Seen){room, room + size, (whole *)(room + 2*size), room + 2*size + f->lines};
}
static long room_to_see(const Form *f) { return 2*(f->seen.size + f->lines); }

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

static void removed_task(const void *form, long task, real *room) {
    const Form *f = form;
    long blocks = (f->n + FILTERS - 1)/FILTERS, b = task/blocks, first = task % blocks*FILTERS;
    long inner = f->rim*f->seen.step + f->rim, of_pose = f->i*f->in.size;
    real *sum = room + f->q*of_pose;
    Seen seen = seen_in(f, sum + f->lines);
    for (long q = 0; q < f->q; q++) pad_planes(f, room + q*of_pose, b, q);
    for (long n = first; n < f->n && n < first + FILTERS; n++) {
        memset(sum, 0, f->lines*sizeof(real));
        for (long q = 0; q < f->q; q++) {
            see(f, room + q*of_pose, b, q, n, &seen);
            for (long y = 0; y < f->oh; y++)
                for (long x = 0; x < f->in.line; x += LANES) {
                    long i = y*f->in.line + x;
                    vec total = load(seen.total + inner + y*f->seen.step + x);
                    *(vec *)(sum + i) += load(seen.weights + i)*total;
                }
        }
        for (long y = 0; y < f->oh; y++)
            memcpy(f->y + (b*f->n + n)*f->places + y*f->ow, sum + y*f->in.line,
                   f->ow*sizeof(real));
    }
}

typedef struct { real *total, *top, *scores; } Gradients;   /* lines; of scores with a rim */

/* back through the weights, from `of_y`: lines in which zeros follow each row */
static void through_weights(const Form *f, const Seen *seen, const real *of_y, long b, long q,
                            long n, const Gradients *g) {
    long inner = f->rim*f->seen.step + f->rim;
    for (long y = 0; y < f->oh; y++)
        for (long x = 0; x < f->in.line; x += LANES) {
            long i = y*f->in.line + x, j = inner + y*f->seen.step + x;
            vec s = load(seen->weights + i), of_total = load(of_y + i)*s;
            *(vec *)(g->scores + j) = of_total*(1 - s)*load(seen->total + j);
            *(vec *)(g->total + i) = of_total;
        }
    memset(g->top, 0, f->lines*sizeof(real));
    for (int top = 0; top < 2; top++) {
        real filter[f->A], *to = top ? g->top : g->total;
        real *out = f->of_gate + (((b*2 + top)*f->q + q)*f->n + n)*f->A;
        vec sums[f->A];
        for (long p = 0; p < f->A; p++) sums[p] = all(0);
        gradient(&f->seen, top ? seen->top : seen->total, g->scores + inner, f->seen.step, f->a,
                 f->gate_dilation, sums);
        for (long p = 0; p < f->A; p++) out[p] = total_of(sums[p]);
        correlate(&f->seen, g->scores, turned(filter, gate_of(f, top, q, n), f->A), f->a,
                  f->gate_dilation, to);
        for (long y = 0; y < f->oh; y++)
            memset(to + y*f->in.line + f->ow, 0, (f->in.line - f->ow)*sizeof(real));
    }
}

/* the gradient of one filter's products with channel c, with the rim of `back` */
static void of_products(const Form *f, const Gradients *g, const whole *winner, long c, real *to) {
    bits number = (bits){0} + (whole)(c + 1), of_place;
    for (long y = 0; y < f->oh; y++)
        for (long x = 0; x < f->in.line; x += LANES) {
            long i = y*f->in.line + x;
            memcpy(&of_place, winner + i, sizeof of_place);
            vec won = select_(of_place == number, load(g->top + i), all(0));
            *(vec *)(to + y*f->back.step + x) = load(g->total + i) + won;
        }
}

/* a task is a pose of a sample */
static void backward_task(const void *form, long task, real *room) {
    const Form *f = form;
    const Frame *in = &f->in, *back = &f->back;
    long b = task/f->q, q = task % f->q, plane = f->h*back->line, corner = f->reach - f->pad;
    real *planes = room, *of_planes = planes + f->i*in->size, *of_y = of_planes + f->i*plane;
    real *of_z = of_y + f->lines, *scores = of_z + back->size, *rest = scores + f->seen.size;
    real *inside = of_z + corner*back->step + corner;   /* its rim */
    Gradients g = {rest, rest + f->lines, scores};
    Seen seen = seen_in(f, rest + 2*f->lines);
    memset(of_planes, 0, (rest - of_planes)*sizeof(real));
    pad_planes(f, planes, b, q);
    for (long n = 0; n < f->n; n++) {
        for (long y = 0; y < f->oh; y++)
            memcpy(of_y + y*in->line, f->of_y + (b*f->n + n)*f->places + y*f->ow,
                   f->ow*sizeof(real));
        see(f, planes, b, q, n, &seen);
        through_weights(f, &seen, of_y, b, q, n, &g);
        for (long c = 0; c < f->i; c++) {
            long filter = ((task*f->i + c)*f->n + n)*f->K;
            real back_filter[f->K];
            vec sums[f->K];
            for (long p = 0; p < f->K; p++) sums[p] = all(0);
            of_products(f, &g, seen.winner, c, inside);
            gradient(in, planes + c*in->size, inside, back->step, f->k, f->dilation, sums);
            for (long p = 0; p < f->K; p++) f->of_filters[filter + p] = total_of(sums[p]);
            correlate(back, of_z, turned(back_filter, f->filters + filter, f->K), f->k, f->dilation,
                      of_planes + c*plane);
        }
    }
    real *out = f->of_x + task*f->i*f->h*f->w;
    for (long c = 0; c < f->i; c++)
        for (long y = 0; y < f->h; y++, out += f->w)
            memcpy(out, of_planes + c*plane + y*back->line, f->w*sizeof(real));
}

/* ---- what Python calls; sizes b q i n h w k dilation pad, three steps of x, a and the dilation of
   the gate. Not 0 if memory ran out. */

int pair_statistics(const real *filters, const real *x, real *mean, real *top, int *place,
                    const long *sizes, long threads) {
    Form f = form_of(filters, x, NULL, sizes);
    f.mean = mean;
    f.top = top;
    f.place = place;
    return run(&f, statistics_task, f.b*f.q*f.i, f.in.size, threads);
}

int pair_statistics_backward(const real *filters, const real *x, int *place, const real *of_mean,
                             const real *of_top, real *of_filters, real *of_x, const long *sizes,
                             long threads) {
    Form f = form_of(filters, x, NULL, sizes);
    f.place = place;
    f.of_mean = of_mean;
    f.of_top = of_top;
    f.of_filters = of_filters;
    f.of_x = of_x;
    return run(&f, statistics_backward_task, f.q*f.i, 2*f.in.size, threads);
}

int pair_removed(const real *filters, const real *x, const real *gate, real *y, const long *sizes,
                 long threads) {
    Form f = form_of(filters, x, gate, sizes);
    f.y = y;
    long room = f.q*f.i*f.in.size + f.lines + room_to_see(&f);
    return run(&f, removed_task, f.b*((f.n + FILTERS - 1)/FILTERS), room, threads);
}

/* of_gate (b, 2, q, n, A): the sum over samples is left to who calls */
int pair_removed_backward(const real *filters, const real *x, const real *gate, const real *of_y,
                          real *of_filters, real *of_x, real *of_gate, const long *sizes,
                          long threads) {
    Form f = form_of(filters, x, gate, sizes);
    f.of_y = of_y;
    f.of_filters = of_filters;
    f.of_x = of_x;
    f.of_gate = of_gate;
    long room = f.i*(f.in.size + f.h*f.back.line) + 3*f.lines + f.back.size + f.seen.size;
    return run(&f, backward_task, f.b*f.q, room + room_to_see(&f), threads);
}
