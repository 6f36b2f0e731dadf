/* Steps the wall clock of a dynamically linked server: clock_gettime, gettimeofday and time add the
 * microseconds that the file SKEW_FILE holds. The monotonic clock is untouched. System calls only, no
 * allocation: the allocator of the server asks the time too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long skew(void) {
    const char *path = getenv("SKEW_FILE");
    if (!path) return 0;
    long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return 0;
    char text[32];
    long n = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (n <= 0) return 0;
    text[n] = 0;
    return atoll(text);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int result = syscall(SYS_clock_gettime, clock, t);
    if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    long long us = skew(), ns = t->tv_nsec + us % 1000000 * 1000;
    t->tv_sec += us / 1000000;
    if (ns < 0) { ns += 1000000000; t->tv_sec--; }
    if (ns >= 1000000000) { ns -= 1000000000; t->tv_sec++; }
    t->tv_nsec = ns;
    return 0;
}

int gettimeofday(struct timeval *tv, void *zone) {
    (void)zone;
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0) return -1;
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
