/* Many tasks for some threads, and vectors. REAL, float or double, is set by who compiles.

   Each source has a struct `Form`, which native.py reads from its text: Python sets its fields by
   their names, and what stands in the struct inside it is C's own, made of the others. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef REAL real;
enum { LANES = 32/sizeof(real) };
typedef real vec __attribute__((vector_size(32), aligned(sizeof(real))));

/* whole numbers as wide as a real; of a comparison, -1 is true */
typedef __typeof__(__builtin_choose_expr(sizeof(real) == 4, (int32_t)0, (int64_t)0)) whole;
typedef whole bits __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const real *p) { return *(const vec *)p; }
INLINE vec all(real x) { return (vec){0} + x; }
INLINE vec select_(bits which, vec a, vec b) {
    return (vec)(((bits)a & which) | ((bits)b & ~which));
}

enum { DIGITS = sizeof(real) == 4 ? 23 : 52, TERMS = sizeof(real) == 4 ? 7 : 13 };

INLINE vec larger(vec a, vec b) { return select_(a > b, a, b); }

/* e^x of x <= 0, by 2^n e^r with |r| <= log(2)/2 */
static inline vec exponential(vec x) {
    const real lowest = sizeof(real) == 4 ? -87 : -708, magic = (real)3*((whole)1 << (DIGITS - 1));
    const real high = sizeof(real) == 4 ? 0.693359375 : 6.93147180369123816490e-01;
    const real low = sizeof(real) == 4 ? -2.12194440054690583e-4 : 1.90821492927058770002e-10;
    x = larger(x, all(lowest));
    vec n = (x*(real)1.44269504088896340736 + magic) - magic, r = (x - n*high) - n*low, p = all(1);
#pragma GCC unroll 16
    for (int i = TERMS; i > 0; i--) p = p*r*(1/(real)i) + 1;
    bits power = (bits)(n + magic) << DIGITS;   /* the last digits of n + magic are n */
    return (vec)((bits)p + power);
}

/* the first n numbers of a vector */
INLINE void store(real *p, vec x, long n) {
    if (n >= LANES) *(vec *)p = x;
    else memcpy(p, &x, n*sizeof(real));
}

/* ---- the working space of a task: what it takes is counted once, with nothing behind it, and then
   taken by each task alike */

typedef struct { char *start; size_t used; } Space;

static void *take(Space *space, size_t bytes) {
    void *here = space->start ? space->start + space->used : NULL;
    space->used += (bytes + 31)/32*32;
    return here;
}
#define TAKE(space, count, type) ((type *)take(space, (count)*sizeof(type)))

/* ---- tasks, shared among threads */

enum { MOST_THREADS = 64 };
typedef void Task(const void *form, long task, Space room);
typedef struct { const void *form; Task *task; long tasks; size_t room; atomic_long next, failed; } Job;

static void work(void *argument) {
    Job *job = argument;
    Space room = {malloc(job->room), 0};
    if (!room.start) { job->failed = 1; return; }
    for (long i; (i = atomic_fetch_add(&job->next, 1)) < job->tasks;)
        job->task(job->form, i, room);
    free(room.start);
}

static void *work_of_thread(void *argument) {
    work(argument);
    return NULL;
}

/* GOMP_parallel of the OpenMP that torch computes with: threads of our own would have to share
   their cores with its threads, which go on spinning for milliseconds after their work. */
typedef void Parallel(void (*)(void *), void *, unsigned threads, unsigned flags);
static Parallel *parallel;
static long of_process;   /* after a fork those threads are gone */

void use_threads_of(Parallel *function, long process) {
    parallel = function;
    of_process = process;
}

/* each task once, each thread with as much space as was counted; not 0 if memory ran out */
static int run(const void *form, Task *task, long tasks, Space counted, long threads) {
    Job job = {form, task, tasks, counted.used, 0, 0};
    if (threads > tasks) threads = tasks;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > 1 && parallel && of_process == getpid()) {
        parallel(work, &job, threads, 0);
        return job.failed;
    }
    pthread_t others[MOST_THREADS];
    long started = 0;
    while (started < threads - 1 && !pthread_create(&others[started], NULL, work_of_thread, &job))
        started++;
    work(&job);
    for (long i = 0; i < started; i++) pthread_join(others[i], NULL);
    return job.failed;
}
