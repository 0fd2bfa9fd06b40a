/* The time that seeds the random numbers of LMDB's tests: the same for both engines. */
#include <stdlib.h>
#include <time.h>

time_t judge_time(time_t *to);
time_t judge_time(time_t *to) {
    (void)to;
    return atoi(getenv("JUDGE_SEED"));
}
