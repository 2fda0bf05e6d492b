/* The four forms of windows.py on a processor: sums over a window of weights, values and targets,
   plane by plane, so that what is read again is still in the cache.

   weights (b, n, K, g, h, w)   values (b, n, S*d, g, h, w)   target (b, n, d, g, h, w)
   scale (n, S*d, K, g), or NULL: ones, if S = 1
   b images, n heads, d channels of a head, K = k*k offsets, g poses, h rows, w columns;
   S sources whose channels meet the same target: channel s*d + c of values belongs to c.
   A plane (h, w) lies in one piece, planes may lie anywhere; scale is contiguous.
   REAL, float or double, is set by who compiles. */
#include "tasks.h"

enum { BLOCK = 4 };   /* sums that are kept at once */

typedef struct { real *start; long image, head, channel, pose; } Planes;   /* and steps */
typedef struct {
    Planes weights, values, target, out;
    const real *scale;
    real *of_scale;
    long b, n, d, k, g, h, w, dilation, S, threads;
    struct {
        long K, pad, W, plane;   /* offsets, width of the rim, width and size of a padded plane */
        long moved, copied;      /* planes of weights to pad, and planes to copy where w < LANES */
    };
} Form;
const long form_size = sizeof(Form);

/* ---- planes with a rim of zeros */

static void pad_planes(const Form *f, real *to, const real *from, long step, long planes) {
    memset(to, 0, (planes*f->plane + LANES)*sizeof(real));
    for (long c = 0; c < planes; c++, from += step)
        for (long y = 0; y < f->h; y++)
            memcpy(to + c*f->plane + (y + f->pad)*f->W + f->pad, from + y*f->w, f->w*sizeof(real));
}

static long shift(const Form *f, long i) { return (i/f->k*f->W + i % f->k)*f->dilation; }

/* the next vector of a row: the last one overlaps the one before, and a row that is shorter
   than a vector is read beyond its end */
static long column(const Form *f, long x) { return x + LANES > f->w && f->w > LANES ? f->w - LANES : x; }

/* The rows of a narrow plane are read beyond their ends. Where that would be beyond the memory of
   the tensor, the plane is read from a copy. */
static const real *readable(const Form *f, const Planes *p, long channels, const real *plane,
                            real *copy) {
    const real *last = p->start + (f->b - 1)*p->image + (f->n - 1)*p->head
                     + (channels - 1)*p->channel + (f->g - 1)*p->pose;
    if (f->w >= LANES || last - plane >= LANES) return plane;
    memcpy(copy, plane, f->h*f->w*sizeof(real));
    memset(copy + f->h*f->w, 0, LANES*sizeof(real));
    return copy;
}

/* ---- what a task works with */

typedef struct { const real *plane; long at, step; } Weights;   /* step: from row to row */
typedef struct {
    long *at;                      /* of each offset, from a place to what it meets */
    Weights *weights;              /* of each offset */
    const real **targets;          /* of each channel */
    real *padded, *moved, *copy;   /* planes, with room to be read beyond their ends */
    long of_copy;                  /* from copy to copy */
} Room;

static Room lay_out(const Form *f, Space *s) {
    Room r = {.of_copy = f->h*f->w + LANES};
    r.at = TAKE(s, f->K, long);
    r.weights = TAKE(s, f->K, Weights);
    r.targets = TAKE(s, f->d, const real *);
    r.padded = TAKE(s, f->S*f->d*f->plane + LANES, real);
    r.moved = TAKE(s, f->moved*f->plane + LANES, real);
    r.copy = TAKE(s, f->w < LANES ? f->copied*r.of_copy : 0, real);
    return r;
}

/* ---- a sum over offsets, of some channels at once so that each weight is loaded once */

INLINE void mix_channels(
        const Form *f, const Weights *weights, const real *padded, const long *at,
        const real *psi, long sources, real *out, int channels) {
    long of_psi = f->K*f->g;
    for (long y = 0; y < f->h; y++)
        for (long x = 0; x < f->w; x += LANES) {
            long left = column(f, x), i = y*f->W + left;
            vec sum[BLOCK] = {0};
            for (long o = 0; o < f->K; o++) {
                vec w = load(weights[o].plane + weights[o].at + y*weights[o].step + left);
                for (int c = 0; c < channels; c++) {
                    vec u = {0};
                    for (long s = 0; s < sources; s++) {
                        vec v = load(padded + (s*f->d + c)*f->plane + i + at[o]);
                        u += psi ? v*psi[(s*f->d + c)*of_psi + o*f->g] : v;
                    }
                    sum[c] += w*u;
                }
            }
            for (int c = 0; c < channels; c++)
                store(out + c*f->out.channel + y*f->w + left, sum[c], f->w - left);
        }
}

/* d channels of the result, each from `sources` channels of what is padded */
static void mix(const Form *f, const Weights *weights, const real *padded, const long *at,
                const real *psi, long sources, real *out) {
    for (long c = 0, many; c < f->d; c += many) {
        const real *from = padded + c*f->plane, *of_c = psi ? psi + c*f->K*f->g : NULL;
        real *to = out + c*f->out.channel;
        many = f->d - c < BLOCK ? 1 : BLOCK;
        if (many == 1) mix_channels(f, weights, from, at, of_c, sources, to, 1);
        else if (!psi) mix_channels(f, weights, from, at, NULL, 1, to, BLOCK);
        else mix_channels(f, weights, from, at, of_c, sources, to, BLOCK);
    }
}

/* the planes of a task: of an image, a head, a pose */
static real *planes_of(const Form *f, const Planes *p, long task) {
    long b = task/f->g/f->n, n = task/f->g % f->n;
    return p->start + b*p->image + n*p->head + task % f->g*p->pose;
}
static const real *psi_of(const Form *f, long task) {
    return f->scale ? f->scale + task/f->g % f->n*f->S*f->d*f->K*f->g + task % f->g : NULL;
}

/* ∂T/∂g = Σ_Δ w_Δ(x) ψ_Δ v(x+Δ) */
static void sum_task(const void *form, long task, Space space) {
    const Form *f = form;
    Room r = lay_out(f, &space);
    const real *w = planes_of(f, &f->weights, task);
    for (long o = 0; o < f->K; o++) {
        const real *plane = w + o*f->weights.channel;
        plane = readable(f, &f->weights, f->K, plane, r.copy + o*r.of_copy);
        r.weights[o] = (Weights){plane, 0, f->w};
        r.at[o] = shift(f, o);
    }
    pad_planes(f, r.padded, planes_of(f, &f->values, task), f->values.channel, f->S*f->d);
    mix(f, r.weights, r.padded, r.at, psi_of(f, task), f->S, planes_of(f, &f->out, task));
}

/* ∂T/∂v = Σ_Δ w_Δ(x-Δ) ψ_Δ g(x-Δ): both are read at the target */
static void spread_task(const void *form, long task, Space space) {
    const Form *f = form;
    Room r = lay_out(f, &space);
    pad_planes(f, r.moved, planes_of(f, &f->weights, task), f->weights.channel, f->K);
    pad_planes(f, r.padded, planes_of(f, &f->target, task), f->target.channel, f->d);
    for (long o = 0; o < f->K; o++) {
        r.at[o] = shift(f, f->K - 1 - o);
        r.weights[o] = (Weights){r.moved + o*f->plane, r.at[o], f->W};
    }
    for (long s = 0; s < f->S; s++) {
        const real *psi = psi_of(f, task);
        real *out = planes_of(f, &f->out, task) + s*f->d*f->out.channel;
        mix(f, r.weights, r.padded, r.at, psi ? psi + s*f->d*f->K*f->g : NULL, 1, out);
    }
}

/* ∂T/∂w = Σ_c g(x) ψ_Δ v(x+Δ), of some offsets at once so that each query is loaded once */
INLINE void score_offsets(
        const Form *f, const real *padded, const real *const *targets, const real *psi,
        long o, real *out, int offsets) {
    long of_psi = f->K*f->g, sources = psi ? f->S : 1, at[BLOCK];
    for (int j = 0; j < offsets; j++) at[j] = shift(f, o + j);
    for (long y = 0; y < f->h; y++)
        for (long x = 0; x < f->w; x += LANES) {
            long left = column(f, x), i = y*f->W + left;
            vec sum[BLOCK] = {0};
            for (long c = 0; c < f->d; c++) {
                vec g = load(targets[c] + y*f->w + left);
                for (int j = 0; j < offsets; j++) {
                    vec u = {0};
                    for (long s = 0; s < sources; s++) {
                        vec v = load(padded + (s*f->d + c)*f->plane + i + at[j]);
                        u += psi ? v*psi[(s*f->d + c)*of_psi + (o + j)*f->g] : v;
                    }
                    sum[j] += g*u;
                }
            }
            for (int j = 0; j < offsets; j++)
                store(out + (o + j)*f->out.channel + y*f->w + left, sum[j], f->w - left);
        }
}

static void scores_task(const void *form, long task, Space space) {
    const Form *f = form;
    Room r = lay_out(f, &space);
    long o = 0;
    const real *target = planes_of(f, &f->target, task), *psi = psi_of(f, task);
    real *out = planes_of(f, &f->out, task);
    for (long c = 0; c < f->d; c++)
        r.targets[c] = readable(f, &f->target, f->d, target + c*f->target.channel,
                                r.copy + c*r.of_copy);
    pad_planes(f, r.padded, planes_of(f, &f->values, task), f->values.channel, f->S*f->d);
    for (; o + BLOCK <= f->K; o += BLOCK) {
        if (psi) score_offsets(f, r.padded, r.targets, psi, o, out, BLOCK);
        else score_offsets(f, r.padded, r.targets, NULL, o, out, BLOCK);
    }
    for (; o < f->K; o++) score_offsets(f, r.padded, r.targets, psi, o, out, 1);
}

/* ∂T/∂ψ = Σ_x w_Δ(x) v(x+Δ) g(x), of some offsets at once, of one image, added to `out` */
INLINE void scale_offsets(
        const Form *f, const real *weights, const real *padded, const real *target,
        long o, real *out, int offsets) {
    long size = f->weights.channel, at[BLOCK];
    vec sum[BLOCK] = {0};
    real rest[BLOCK] = {0};
    for (int j = 0; j < offsets; j++) at[j] = shift(f, o + j);
    for (long y = 0; y < f->h; y++) {
        const real *g = target + y*f->w, *w = weights + o*size + y*f->w, *v = padded + y*f->W;
        long x = 0;
        for (; x + LANES <= f->w; x += LANES)
            for (int j = 0; j < offsets; j++)
                sum[j] += load(g + x)*load(w + j*size + x)*load(v + at[j] + x);
        for (; x < f->w; x++)
            for (int j = 0; j < offsets; j++) rest[j] += g[x]*w[j*size + x]*v[at[j] + x];
    }
    for (int j = 0; j < offsets; j++) {
        for (int l = 0; l < LANES; l++) rest[j] += sum[j][l];
        out[(o + j)*f->g] += rest[j];
    }
}

/* a task is a head and a pose; the sum over all images is its own */
static void scale_task(const void *form, long task, Space space) {
    const Form *f = form;
    Room r = lay_out(f, &space);
    long head = task/f->g, pose = task % f->g;
    for (long b = 0; b < f->b; b++) {
        long t = (b*f->n + head)*f->g + pose;
        const real *weights = planes_of(f, &f->weights, t), *target = planes_of(f, &f->target, t);
        pad_planes(f, r.padded, planes_of(f, &f->values, t), f->values.channel, f->S*f->d);
        for (long c = 0; c < f->S*f->d; c++) {
            real *out = f->of_scale + (head*f->S*f->d + c)*f->K*f->g + pose;
            const real *plane = r.padded + c*f->plane;
            long o = 0;
            if (!b) for (long i = 0; i < f->K; i++) out[i*f->g] = 0;
            const real *of_c = target + c % f->d*f->target.channel;
            for (; o + BLOCK <= f->K; o += BLOCK)
                scale_offsets(f, weights, plane, of_c, o, out, BLOCK);
            for (; o < f->K; o++) scale_offsets(f, weights, plane, of_c, o, out, 1);
        }
    }
}

/* ---- what Python calls: the derivative in the factor of the name, which is NULL, to `out`, or to
   `of_scale`. Not 0 if memory ran out. */

static int compute(Form *f, Task *task, long tasks, long moved, long copied) {
    f->K = f->k*f->k;
    f->pad = f->dilation*(f->k/2);
    f->W = f->w + 2*f->pad;
    f->plane = (f->h + 2*f->pad)*f->W;
    f->moved = moved;
    f->copied = copied;
    Space counted = {0};
    lay_out(f, &counted);
    return run(f, task, tasks, counted, f->threads);
}

int window_target(Form *f) { return compute(f, sum_task, f->b*f->n*f->g, 0, f->k*f->k); }
int window_values(Form *f) { return compute(f, spread_task, f->b*f->n*f->g, f->k*f->k, 0); }
int window_weights(Form *f) { return compute(f, scores_task, f->b*f->n*f->g, 0, f->d); }
int window_scale(Form *f) { return compute(f, scale_task, f->n*f->g, 0, 0); }
