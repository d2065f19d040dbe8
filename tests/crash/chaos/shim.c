/* A disk and a clock that misbehave when they are told to: put before a process by LD_PRELOAD.
 *
 * CHAOS_CONTROL names a file of one page that is mapped by all processes and written by tests/crash/chaos/faults.py,
 * which has the same layout; CHAOS_DIRECTORY names the folder whose files are meant. A kind of operation that stands in
 * `mask` fails with `error`, or does what its kind says, in `ppm` of a million calls, at most `left` times.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum {
    READ = 1,      /* pread and sendfile */
    WRITE = 2,     /* one time in four a half is written before it fails */
    SYNC = 4,      /* fsync of folders too */
    TRUNCATE = 8,
    NAMES = 16,    /* rename, link, unlink, mkdir */
    OPEN = 32,     /* for writing */
    SHORT = 64,    /* a write does a part of what it was asked to, and says so */
    LOSE = 128,    /* a write does nothing, and says that all went well: no disk may, a checker must see it */
};

struct control {
    volatile uint32_t mask;
    volatile int32_t error;
    volatile uint32_t ppm;
    volatile int32_t left;
    volatile uint32_t injected;
    volatile uint32_t unused;
    volatile int64_t clock_offset_s;
    char match[64]; /* a part of the path; empty for all */
};

static struct control *control;
static const char *directory;
static size_t directory_length;

__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv("CHAOS_CONTROL");
    directory = getenv("CHAOS_DIRECTORY");
    if (!path || !directory) return;
    directory_length = strlen(directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) control = page;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int is_hit(const char *path, uint32_t kind) {
    if (!control || !(control->mask & kind) || strncmp(path, directory, directory_length)) return 0;
    if (control->match[0] && !strstr(path, control->match)) return 0;
    static __thread unsigned seed;
    if (!seed) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        seed = (unsigned)now.tv_nsec ^ (unsigned)getpid();
    }
    if ((uint32_t)(rand_r(&seed) % 1000000) >= control->ppm) return 0;
    if (control->left >= 0 && __sync_fetch_and_sub(&control->left, 1) <= 0) {
        control->left = 0;
        return 0;
    }
    __sync_fetch_and_add(&control->injected, 1);
    return 1;
}

static int is_hit_fd(int fd, uint32_t kind) {
    if (!control || !(control->mask & kind)) return 0;
    char link[40], path[1024];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0) return 0;
    path[length] = 0;
    return is_hit(path, kind);
}

#define FAIL_IF(hit) do { if (hit) { errno = control->error; return -1; } } while (0)

#define PWRITE(name, offset_t) \
    ssize_t name(int fd, const void *data, size_t size, offset_t position) { \
        REAL(name); \
        if (is_hit_fd(fd, LOSE)) return (ssize_t)size; \
        if (is_hit_fd(fd, WRITE)) { \
            if (control->injected % 4 == 1 && size > 8) real(fd, data, size / 2, position); \
            errno = control->error; \
            return -1; \
        } \
        if (size > 1 && is_hit_fd(fd, SHORT)) size = 1 + size / 3; \
        return real(fd, data, size, position); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) { REAL(write); FAIL_IF(is_hit_fd(fd, WRITE)); return real(fd, data, size); }

#define PREAD(name, offset_t) \
    ssize_t name(int fd, void *data, size_t size, offset_t position) { \
        REAL(name); FAIL_IF(is_hit_fd(fd, READ)); return real(fd, data, size, position); \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

#define SENDFILE(name, offset_t) \
    ssize_t name(int out, int in, offset_t *position, size_t size); \
    ssize_t name(int out, int in, offset_t *position, size_t size) { \
        REAL(name); FAIL_IF(is_hit_fd(in, READ)); return real(out, in, position, size); \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

int fsync(int fd) { REAL(fsync); FAIL_IF(is_hit_fd(fd, SYNC)); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); FAIL_IF(is_hit_fd(fd, SYNC)); return real(fd); }
int ftruncate(int fd, off_t size) { REAL(ftruncate); FAIL_IF(is_hit_fd(fd, TRUNCATE)); return real(fd, size); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); FAIL_IF(is_hit_fd(fd, TRUNCATE)); return real(fd, size); }
int rename(const char *from, const char *to) { REAL(rename); FAIL_IF(is_hit(from, NAMES)); return real(from, to); }
int link(const char *from, const char *to) { REAL(link); FAIL_IF(is_hit(from, NAMES)); return real(from, to); }
int unlink(const char *path) { REAL(unlink); FAIL_IF(is_hit(path, NAMES)); return real(path); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); FAIL_IF(is_hit(path, NAMES)); return real(path, mode); }

#define OPEN_FILE(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        REAL(name); \
        FAIL_IF((flags & (O_WRONLY | O_RDWR | O_CREAT)) && is_hit(path, OPEN)); \
        return real(path, flags, mode); \
    }
OPEN_FILE(open)
OPEN_FILE(open64)

int clock_gettime(clockid_t id, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(id, now);
    if (control && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += control->clock_offset_s;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(gettimeofday);
    int result = real(now, zone);
    if (control) now->tv_sec += control->clock_offset_s;
    return result;
}

time_t time(time_t *result) {
    REAL(time);
    time_t now = real(NULL) + (control ? control->clock_offset_s : 0);
    if (result) *result = now;
    return now;
}
