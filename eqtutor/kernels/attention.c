/* The attention of self_attention.py in windows, on a processor: an image and a head at a time, a
   vector of neighbouring queries at a time, all weights of which stay in the cache.

   q (N, S, h, w, d)   kv (N, Q, Y, X, 2d)   offsets (K, R, d)   poses (S, Q, d)   y (N, h, w, R, d)
   N images and heads; S, R, Q poses of queries, targets and sources; K = k*k offsets; d width of
   a head; h, w queries; Y, X keys, with `padding` places beyond the image on each side.
   REAL, float or double, is set by who compiles. */
#include "tasks.h"

typedef struct {
    const real *q, *kv, *offsets, *poses, *g;
    real *y, *dq, *dkv, *doffsets, *dposes;
    long N, S, R, Q, k, d, h, w, Y, X, padding, threads;
    unsigned long seed, drop;   /* weights are dropped whose 32 random bits are below `drop` */
    struct {
        long K, W, wide;        /* offsets; width of a row of queries in vectors, of keys padded */
    };
} Form;
const long form_size = sizeof(Form);

/* ---- vectors */

static uint64_t scramble(uint64_t x) {
    x = (x ^ x >> 30)*0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27)*0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* 1 where a weight is kept: always the same for the same seed, weight and pixel */
static vec kept(const Form *f, uint64_t weight, long pixel) {
    uint32_t key = scramble(f->seed ^ scramble(weight));
    vec keep;
    for (int l = 0; l < LANES; l++) {
        uint32_t x = key + (uint32_t)(pixel + l)*0x9e3779b1u;
        x = (x ^ x >> 16)*0x7feb352du;
        x = (x ^ x >> 15)*0x846ca68bu;
        keep[l] = (x ^ x >> 16) >= f->drop;
    }
    return keep;
}

/* ---- a function for each number of sums that are kept at once, at most MOST */
enum { MOST = 6 };
#define EACH(many, call) switch (many) { \
    case 1: call(1); break; case 2: call(2); break; case 3: call(3); break; \
    case 4: call(4); break; case 5: call(5); break; case 6: call(6); break; }
static long share(long n) { long parts = (n + MOST - 1)/MOST; return (n + parts - 1)/parts; }
static long at_most(long a, long b) { return a < b ? a : b; }

/* ---- what a task works with */

typedef struct {
    long *at;                             /* from a query to the keys of its window */
    vec *c, *b, *a, *m, *top, *total;     /* of a vector of queries: weights, and what they are made of */
    vec *dm, *da, *db, *doffsets, *dposes;
    real *q, *g, *k, *v, *dk, *dv, *dq;   /* planes */
} Room;

static Room lay_out(const Form *f, Space *s) {
    long S = f->S, R = f->R, Q = f->Q, K = f->K, d = f->d;
    long keys = Q*d*f->Y*f->wide + LANES, queries = d*f->h*f->W;
    Room r;
    r.at = TAKE(s, K, long);
    r.c = TAKE(s, S*Q*K, vec);
    r.b = TAKE(s, S*Q*K, vec);
    r.a = TAKE(s, S*R*K, vec);
    r.m = TAKE(s, R*Q*K, vec);
    r.top = TAKE(s, S*K, vec);
    r.total = TAKE(s, S*K, vec);
    r.dm = TAKE(s, R*Q*K, vec);
    r.da = TAKE(s, S*R*K, vec);
    r.db = TAKE(s, S*Q*K, vec);
    r.doffsets = TAKE(s, R*K*d, vec);
    r.dposes = TAKE(s, S*Q*d, vec);
    r.q = TAKE(s, S*queries, real);
    r.g = TAKE(s, R*queries, real);
    r.k = TAKE(s, keys, real);
    r.v = TAKE(s, keys, real);
    r.dk = TAKE(s, keys, real);
    r.dv = TAKE(s, keys, real);
    r.dq = TAKE(s, S*queries, real);
    return r;
}

/* (rows, columns, step) with channels last to planes (channels, rows, wide), zeros to the right */
static void to_planes(real *to, const real *from, long channels, long step, long rows, long columns,
                      long wide) {
    for (long c = 0; c < channels; c++)
        for (long y = 0; y < rows; y++) {
            real *row = to + (c*rows + y)*wide;
            for (long x = 0; x < columns; x++) row[x] = from[(y*columns + x)*step + c];
            for (long x = columns; x < wide; x++) row[x] = 0;
        }
}
static void from_planes(real *to, const real *from, long channels, long step, long rows,
                        long columns, long wide) {
    for (long c = 0; c < channels; c++)
        for (long y = 0; y < rows; y++)
            for (long x = 0; x < columns; x++)
                to[(y*columns + x)*step + c] = from[(c*rows + y)*wide + x];
}

static void set_up(const Form *f, long task, Room *r) {
    for (long s = 0; s < f->S; s++)
        to_planes(r->q + s*f->d*f->h*f->W, f->q + (task*f->S + s)*f->h*f->w*f->d, f->d, f->d,
                  f->h, f->w, f->W);
    for (long p = 0; p < f->Q; p++) {
        const real *kv = f->kv + (task*f->Q + p)*f->Y*f->X*2*f->d;
        long at = p*f->d*f->Y*f->wide;
        to_planes(r->k + at, kv, f->d, 2*f->d, f->Y, f->X, f->wide);
        to_planes(r->v + at, kv + f->d, f->d, 2*f->d, f->Y, f->X, f->wide);
    }
    memset(r->k + f->Q*f->d*f->Y*f->wide, 0, LANES*sizeof(real));
    memset(r->v + f->Q*f->d*f->Y*f->wide, 0, LANES*sizeof(real));
    for (long o = 0; o < f->K; o++) r->at[o] = o/f->k*f->wide + o % f->k;
}

/* ---- products of a vector of queries with what lies around them */

/* out[o] = Σ_c x_c y_c(at o), for some offsets */
INLINE void around(vec *out, const real *x, long step, const real *y, long plane, const long *at,
                   long d, int many) {
    vec sum[MOST] = {0};
    for (long c = 0; c < d; c++) {
        vec v = load(x + c*step);
        for (int o = 0; o < many; o++) sum[o] += v*load(y + c*plane + at[o]);
    }
    for (int o = 0; o < many; o++) out[o] = sum[o];
}

/* out[o] = Σ_c x_c table[o][c] */
INLINE void along(vec *out, const real *x, long step, const real *table, long row, long d, int many) {
    vec sum[MOST] = {0};
    for (long c = 0; c < d; c++) {
        vec v = load(x + c*step);
        for (int o = 0; o < many; o++) sum[o] += v*table[o*row + c];
    }
    for (int o = 0; o < many; o++) out[o] = sum[o];
}

/* out_c += Σ_o w[o] y_c(at o), for some channels */
INLINE void gather(real *out, long step, const vec *w, const real *y, long plane, const long *at,
                   long K, int many) {
    vec sum[MOST];
    for (int c = 0; c < many; c++) sum[c] = load(out + c*step);
    for (long o = 0; o < K; o++)
        for (int c = 0; c < many; c++) sum[c] += w[o]*load(y + c*plane + at[o]);
    for (int c = 0; c < many; c++) *(vec *)(out + c*step) = sum[c];
}

/* out_c += Σ_o w[o] table[o][c], for some channels */
INLINE void collect(real *out, long step, const vec *w, const real *table, long row, long K,
                    int many) {
    vec sum[MOST];
    for (int c = 0; c < many; c++) sum[c] = load(out + c*step);
    for (long o = 0; o < K; o++)
        for (int c = 0; c < many; c++) sum[c] += w[o]*table[o*row + c];
    for (int c = 0; c < many; c++) *(vec *)(out + c*step) = sum[c];
}

static void all_around(vec *out, const real *x, long step, const real *y, long plane, const long *at,
                       long d, long K) {
    for (long o = 0, many; o < K; o += many) {
        many = at_most(share(K), K - o);
#define CALL(n) around(out + o, x, step, y, plane, at + o, d, n)
        EACH(many, CALL)
#undef CALL
    }
}
static void all_along(vec *out, const real *x, long step, const real *table, long row, long d,
                      long K) {
    for (long o = 0, many; o < K; o += many) {
        many = at_most(share(K), K - o);
#define CALL(n) along(out + o, x, step, table + o*row, row, d, n)
        EACH(many, CALL)
#undef CALL
    }
}
static void gather_all(real *out, long step, const vec *w, const real *y, long plane, const long *at,
                       long d, long K) {
    for (long c = 0, many; c < d; c += many) {
        many = at_most(share(d), d - c);
#define CALL(n) gather(out + c*step, step, w, y + c*plane, plane, at, K, n)
        EACH(many, CALL)
#undef CALL
    }
}
static void collect_all(real *out, long step, const vec *w, const real *table, long row, long d,
                        long K) {
    for (long c = 0, many; c < d; c += many) {
        many = at_most(share(d), d - c);
#define CALL(n) collect(out + c*step, step, w, table + c, row, K, n)
        EACH(many, CALL)
#undef CALL
    }
}

/* out_c(at o) += Σ_i w[i][o] x[i]_c, each to its source */
static void scatter(real *out, long plane, const vec *w, long w_step, const real *x, long x_step,
                    long step, const long *at, long n, long d, long K) {
    for (long o = 0; o < K; o++)
        for (long c = 0; c < d; c++) {
            real *to = out + c*plane + at[o];
            vec sum = load(to);
            for (long i = 0; i < n; i++) sum += w[i*w_step + o]*load(x + i*x_step + c*step);
            *(vec *)to = sum;
        }
}

/* ---- the weights of a vector of queries */

/* 1 bits where the key of an offset lies in the image */
static bits inside(const Form *f, long o, long y, long x) {
    long row = y + o/f->k - f->padding, column = x + o % f->k - f->padding;
    long rows = f->Y - 2*f->padding, columns = f->X - 2*f->padding;
    bits in = {0};
    if (row < 0 || row >= rows) return in;
    for (int l = 0; l < LANES; l++) in[l] = column + l >= 0 && column + l < columns ? -1 : 0;
    return in;
}

/* over poses at each offset (S, Q, K): b, and what is left of it after dropout, c */
static void over_poses(const Form *f, Room *r, long task, long pixel, const real *k) {
    long S = f->S, Q = f->Q, K = f->K, step = f->h*f->W, plane = f->Y*f->wide;
    for (long s = 0; s < S; s++) {
        const real *q = r->q + s*f->d*step + pixel;
        vec *b = r->b + s*Q*K, *c = r->c + s*Q*K;
        for (long p = 0; p < Q; p++) {
            vec pose;
            along(&pose, q, step, f->poses + (s*Q + p)*f->d, 0, f->d, 1);
            all_around(b + p*K, q, step, k + p*f->d*plane, plane, r->at, f->d, K);
            for (long o = 0; o < K; o++) b[p*K + o] += pose;
        }
        for (long o = 0; o < K; o++) {
            vec top = b[o], total = {0};
            for (long p = 1; p < Q; p++) top = larger(top, b[p*K + o]);
            for (long p = 0; p < Q; p++) total += b[p*K + o] = exponential(b[p*K + o] - top);
            for (long p = 0; p < Q; p++) c[p*K + o] = b[p*K + o] /= total;
            r->top[s*K + o] = top;
            r->total[s*K + o] = total;
        }
        for (long i = 0; f->drop && i < Q*K; i++)
            c[i] *= kept(f, (task*S + s)*Q*K + i, pixel);
    }
}

/* over offsets (S, R, K): a; outside the image 0 */
static void over_offsets(const Form *f, Room *r, long y, long x) {
    long S = f->S, R = f->R, K = f->K, step = f->h*f->W;
    const vec none = all(sizeof(real) == 4 ? -1e30 : -1e300);
    for (long s = 0; s < S; s++)
        for (long t = 0; t < R; t++) {
            vec *a = r->a + (s*R + t)*K, top = none, sum = {0};
            all_along(a, r->q + s*f->d*step + y*f->W + x, step, f->offsets + t*f->d, R*f->d, f->d, K);
            for (long o = 0; o < K; o++) {
                a[o] = select_(inside(f, o, y, x), a[o] + r->top[s*K + o], none);
                top = larger(top, a[o]);
            }
            for (long o = 0; o < K; o++) {
                vec e = exponential(a[o] - top)*r->total[s*K + o];
                sum += a[o] = select_(a[o] > none, e, all(0));
            }
            sum = 1/larger(sum, all(sizeof(real) == 4 ? 1e-30 : 1e-300));
            for (long o = 0; o < K; o++) a[o] *= sum;
        }
}

/* m (R, Q, K): what targets take from sources, summed over the poses of queries */
static void mix(const Form *f, Room *r) {
    long S = f->S, R = f->R, Q = f->Q, K = f->K;
    for (long t = 0; t < R; t++)
        for (long p = 0; p < Q; p++)
            for (long o = 0; o < K; o++) {
                vec sum = {0};
                for (long s = 0; s < S; s++) sum += r->a[(s*R + t)*K + o]*r->c[(s*Q + p)*K + o];
                r->m[(t*Q + p)*K + o] = sum;
            }
}

static void weigh(const Form *f, Room *r, long task, long y, long x) {
    over_poses(f, r, task, y*f->W + x, r->k + y*f->wide + x);
    over_offsets(f, r, y, x);
    mix(f, r);
}

/* ---- forward */

static void attend_task(const void *form, long task, Space space) {
    const Form *f = form;
    Room room = lay_out(f, &space), *r = &room;
    set_up(f, task, r);
    long step = f->h*f->W, plane = f->Y*f->wide;
    memset(r->g, 0, f->R*f->d*step*sizeof(real));   /* the output, in planes */
    for (long y = 0; y < f->h; y++)
        for (long x = 0; x < f->w; x += LANES) {
            weigh(f, r, task, y, x);
            for (long t = 0; t < f->R; t++)
                for (long p = 0; p < f->Q; p++)
                    gather_all(r->g + t*f->d*step + y*f->W + x, step, r->m + (t*f->Q + p)*f->K,
                               r->v + p*f->d*plane + y*f->wide + x, plane, r->at, f->d, f->K);
        }
    real *out = f->y + task*f->h*f->w*f->R*f->d;
    from_planes(out, r->g, f->R*f->d, f->R*f->d, f->h, f->w, f->W);
}

/* ---- backward */

/* from dm (R, Q, K) to da (S, R, K), db (S, Q, K), and to the gradients of the scores: of those
   with offsets in da, of those with keys in db; most of their terms cancel */
static void through_weights(const Form *f, Room *r) {
    long S = f->S, R = f->R, Q = f->Q, K = f->K;
    for (long s = 0; s < S; s++) {
        vec *db = r->db + s*Q*K, *b = r->b + s*Q*K, *c = r->c + s*Q*K, *shared = r->top + s*K;
        memset(shared, 0, K*sizeof(vec));
        memset(db, 0, Q*K*sizeof(vec));
        for (long t = 0; t < R; t++) {
            vec *a = r->a + (s*R + t)*K, *da = r->da + (s*R + t)*K, *dm = r->dm + t*Q*K, sum = {0};
            for (long o = 0; o < K; o++) {
                vec total = {0};
                for (long p = 0; p < Q; p++) {
                    total += dm[p*K + o]*c[p*K + o];
                    db[p*K + o] += dm[p*K + o]*a[o];
                }
                da[o] = total;
                sum += a[o]*total;
            }
            for (long o = 0; o < K; o++) {
                shared[o] += a[o]*sum;
                da[o] = a[o]*(da[o] - sum);
            }
        }
        for (long p = 0; p < Q; p++)
            for (long o = 0; o < K; o++)
                db[p*K + o] = db[p*K + o]*c[p*K + o] - b[p*K + o]*shared[o];
    }
}

/* gradients of queries, keys, offsets and poses from those of the scores */
static void through_scores(const Form *f, Room *r, long y, long x) {
    long S = f->S, R = f->R, Q = f->Q, K = f->K, d = f->d, step = f->h*f->W, plane = f->Y*f->wide;
    long pixel = y*f->W + x, key = y*f->wide + x;
    for (long s = 0; s < S; s++) {
        const real *q = r->q + s*d*step + pixel;
        real *dq = r->dq + s*d*step + pixel;
        for (long p = 0; p < Q; p++) {
            vec *db = r->db + (s*Q + p)*K, *dpose = r->dposes + (s*Q + p)*d, sum = {0};
            gather_all(dq, step, db, r->k + p*d*plane + key, plane, r->at, d, K);
            for (long o = 0; o < K; o++) sum += db[o];
            collect_all(dq, step, &sum, f->poses + (s*Q + p)*d, 0, d, 1);
            for (long c = 0; c < d; c++) dpose[c] += sum*load(q + c*step);
        }
        for (long t = 0; t < R; t++)
            collect_all(dq, step, r->da + (s*R + t)*K, f->offsets + t*d, R*d, d, K);
    }
    for (long p = 0; p < Q; p++)
        scatter(r->dk + p*d*plane + key, plane, r->db + p*K, Q*K, r->q + pixel, d*step, step, r->at,
                S, d, K);
    for (long o = 0; o < K; o++)
        for (long t = 0; t < R; t++)
            for (long c = 0; c < d; c++) {
                vec sum = r->doffsets[(o*R + t)*d + c];
                for (long s = 0; s < S; s++)
                    sum += r->da[(s*R + t)*K + o]*load(r->q + (s*d + c)*step + pixel);
                r->doffsets[(o*R + t)*d + c] = sum;
            }
}

static void add_lanes(real *to, const vec *from, long n) {
    for (long i = 0; i < n; i++) {
        real sum = 0;
        for (int l = 0; l < LANES; l++) sum += from[i][l];
        to[i] = sum;
    }
}

static void backward_task(const void *form, long task, Space space) {
    const Form *f = form;
    Room room = lay_out(f, &space), *r = &room;
    set_up(f, task, r);
    long R = f->R, Q = f->Q, K = f->K, d = f->d, step = f->h*f->W, plane = f->Y*f->wide;
    long keys = (Q*d*plane + LANES)*sizeof(real);
    to_planes(r->g, f->g + task*f->h*f->w*R*d, R*d, R*d, f->h, f->w, f->W);
    memset(r->dk, 0, keys);
    memset(r->dv, 0, keys);
    memset(r->dq, 0, f->S*d*step*sizeof(real));
    memset(r->doffsets, 0, R*K*d*sizeof(vec));
    memset(r->dposes, 0, f->S*Q*d*sizeof(vec));
    for (long y = 0; y < f->h; y++)
        for (long x = 0; x < f->w; x += LANES) {
            long pixel = y*f->W + x, key = y*f->wide + x;
            weigh(f, r, task, y, x);
            for (long p = 0; p < Q; p++) {
                const real *v = r->v + p*d*plane + key;
                for (long t = 0; t < R; t++)
                    all_around(r->dm + (t*Q + p)*K, r->g + t*d*step + pixel, step, v, plane, r->at,
                               d, K);
                scatter(r->dv + p*d*plane + key, plane, r->m + p*K, Q*K, r->g + pixel, d*step, step,
                        r->at, R, d, K);
            }
            through_weights(f, r);
            through_scores(f, r, y, x);
        }
    for (long s = 0; s < f->S; s++)
        from_planes(f->dq + (task*f->S + s)*f->h*f->w*d, r->dq + s*d*step, d, d, f->h, f->w, f->W);
    for (long p = 0; p < Q; p++) {
        real *dkv = f->dkv + (task*Q + p)*f->Y*f->X*2*d;
        from_planes(dkv, r->dk + p*d*plane, d, 2*d, f->Y, f->X, f->wide);
        from_planes(dkv + d, r->dv + p*d*plane, d, 2*d, f->Y, f->X, f->wide);
    }
    add_lanes(f->doffsets + task*K*R*d, r->doffsets, K*R*d);
    add_lanes(f->dposes + task*f->S*Q*d, r->dposes, f->S*Q*d);
}

/* Without g the output, to y. With g the gradients: of q and kv, and of offsets and poses for each
   image and head. `seed` and `drop` (of 2^32) say which weights are dropped; the others are not
   made larger. Not 0 if memory ran out. */
int attend(Form *f) {
    f->K = f->k*f->k;
    f->W = (f->w + LANES - 1)/LANES*LANES;
    f->wide = f->W + f->k - 1 > f->X ? f->W + f->k - 1 : f->X;
    Space counted = {0};
    lay_out(f, &counted);
    return run(f, f->g ? backward_task : attend_task, f->N, counted, f->threads);
}
