/* Many tasks for some threads, and vectors. REAL, float or double, is set by who compiles. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef REAL real;
enum { LANES = 32/sizeof(real) };
typedef real vec __attribute__((vector_size(32), aligned(sizeof(real))));

static inline vec load(const real *p) { return *(const vec *)p; }

/* ---- tasks, shared among threads that live as long as the call */

enum { MOST_THREADS = 64 };
typedef void Task(const void *form, long task, real *room);
typedef struct { const void *form; Task *task; long tasks, room; atomic_long next, failed; } Job;

static void *work(void *argument) {
    Job *job = argument;
    real *room = malloc(job->room*sizeof(real));
    if (!room) { job->failed = 1; return NULL; }
    for (long i; (i = atomic_fetch_add(&job->next, 1)) < job->tasks;)
        job->task(job->form, i, room);
    free(room);
    return NULL;
}

/* each task once, each thread with `room` numbers to work with; not 0 if memory ran out */
static int run(const void *form, Task *task, long tasks, long room, long threads) {
    Job job = {form, task, tasks, room, 0, 0};
    pthread_t others[MOST_THREADS];
    long started = 0;
    if (threads > tasks) threads = tasks;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    while (started < threads - 1 && !pthread_create(&others[started], NULL, work, &job)) started++;
    work(&job);
    for (long i = 0; i < started; i++) pthread_join(others[i], NULL);
    return job.failed;
}
