/* Makes the Nth system call of a kind fail: loaded with LD_PRELOAD, armed by fault_arm().
 *
 * Calls on files count only below a folder, so that Python's own files are spared. A call that fails does nothing, but
 * for a torn write, which writes half. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, OPEN = 4, RENAME = 8, UNLINK = 16, TRUNCATE = 32, FORK = 64, ACCEPT = 128, ALLOCATE = 256,
       READ = 512 };

static char below[PATH_MAX];
static size_t large = 1 << 20;
static int kinds, error_number, is_torn, is_lasting;
static atomic_long num_left, num_hits, num_seen;

/* kinds: a sum of the above. n: the call that fails, from 1; 0: none, they are counted only. lasting: all after it fail
 * too. torn: a write that fails writes half first. */
void fault_arm(int which, long n, int error, int lasting, int torn, const char *folder, size_t large_bytes) {
    kinds = 0;
    snprintf(below, sizeof below, "%s", folder);
    large = large_bytes;
    error_number = error;
    is_lasting = lasting;
    is_torn = torn;
    num_left = n;
    num_hits = num_seen = 0;
    kinds = which;
}

long fault_hits(void) { return num_hits; }
long fault_seen(void) { return num_seen; }

static int fails(int kind) {
    if (!(kinds & kind)) return 0;
    num_seen++;
    long left = --num_left;
    if (left != 0 && !(left < 0 && is_lasting && num_hits)) return 0;
    num_hits++;
    errno = error_number;
    return 1;
}

static int is_below(const char *path) {
    char whole[PATH_MAX];
    if (path[0] != '/') {
        if (!getcwd(whole, sizeof whole)) return 0;
        size_t length = strlen(whole);
        snprintf(whole + length, sizeof whole - length, "/%s", path);
        path = whole;
    }
    return below[0] && !strncmp(path, below, strlen(below));
}

static int holds(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static int fails_on(int kind, int fd) { return (kinds & kind) && holds(fd) && fails(kind); }
static int fails_at(int kind, const char *path) { return (kinds & kind) && is_below(path) && fails(kind); }

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (!fails_on(WRITE, fd)) return real(fd, data, size);
    if (is_torn && size > 1) return real(fd, data, size / 2), errno = error_number, -1;
    return -1;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    if (!fails_on(WRITE, fd)) return real(fd, parts, count);
    if (is_torn && count > 1) return real(fd, parts, count / 2), errno = error_number, -1;
    return -1;
}

#define ON_DESCRIPTOR(kind, type, name, parameters, arguments) \
    type name parameters { \
        REAL(name); \
        return fails_on(kind, fd) ? (type)-1 : real arguments; \
    }
ON_DESCRIPTOR(WRITE, ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ON_DESCRIPTOR(WRITE, ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
ON_DESCRIPTOR(READ, ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
ON_DESCRIPTOR(READ, ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
ON_DESCRIPTOR(READ, ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
ON_DESCRIPTOR(SYNC, int, fsync, (int fd), (fd))
ON_DESCRIPTOR(SYNC, int, fdatasync, (int fd), (fd))
ON_DESCRIPTOR(TRUNCATE, int, ftruncate, (int fd, off_t size), (fd, size))
ON_DESCRIPTOR(TRUNCATE, int, ftruncate64, (int fd, off64_t size), (fd, size))

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return fails_at(OPEN, path) ? -1 : real(path, flags, mode); \
    }
OPENING(open)
OPENING(open64)

#define OPENING_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return fails_at(OPEN, path) ? -1 : real(folder, path, flags, mode); \
    }
OPENING_AT(openat)
OPENING_AT(openat64)

int rename(const char *from, const char *to) {
    REAL(rename);
    return fails_at(RENAME, to) ? -1 : real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    return fails_at(RENAME, to) ? -1 : real(from_folder, from, to_folder, to);
}

int unlink(const char *path) {
    REAL(unlink);
    return fails_at(UNLINK, path) ? -1 : real(path);
}

int truncate(const char *path, off_t size) {
    REAL(truncate);
    return fails_at(TRUNCATE, path) ? -1 : real(path, size);
}

int truncate64(const char *path, off64_t size) {
    REAL(truncate64);
    return fails_at(TRUNCATE, path) ? -1 : real(path, size);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    return fails_at(OPEN, path) ? -1 : real(path, mode);
}

pid_t fork(void) {
    REAL(fork);
    return fails(FORK) ? -1 : real();
}

/* Its frame cannot be shared with a wrapper: a real fork stands in. */
pid_t vfork(void) { return fork(); }

int accept4(int fd, struct sockaddr *from, socklen_t *length, int flags) {
    REAL(accept4);
    return fails(ACCEPT) ? -1 : real(fd, from, length, flags);
}

int accept(int fd, struct sockaddr *from, socklen_t *length) {
    REAL(accept);
    return fails(ACCEPT) ? -1 : real(fd, from, length);
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size) { return size >= large && fails(ALLOCATE) ? NULL : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
    int is_large = size && count >= large / size;
    return is_large && fails(ALLOCATE) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) { return size >= large && fails(ALLOCATE) ? NULL : __libc_realloc(old, size); }

int posix_memalign(void **made, size_t alignment, size_t size) {
    if (size >= large && fails(ALLOCATE)) return ENOMEM;
    return (*made = __libc_memalign(alignment, size)) ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size) {
    return size >= large && fails(ALLOCATE) ? NULL : __libc_memalign(alignment, size);
}

#define MAPPING(name) \
    void *name(void *at, size_t size, int protection, int flags, int fd, off_t offset) { \
        REAL(name); \
        int is_memory = (flags & MAP_ANONYMOUS) && size >= large; \
        return is_memory && fails(ALLOCATE) ? MAP_FAILED : real(at, size, protection, flags, fd, offset); \
    }
MAPPING(mmap)
MAPPING(mmap64)

/* The time of day jumps by so many seconds at every reading, back and forth. */
static long jump;
static atomic_long num_readings;
static long jumped(void) { return num_readings++ % 2 ? jump : -jump; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (jump && !result && clock == CLOCK_REALTIME) now->tv_sec += jumped();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    REAL(gettimeofday);
    int result = real(now, zone);
    if (jump && !result) now->tv_sec += jumped();
    return result;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

/* Armed from the start in a process that cannot be told later. */
__attribute__((constructor)) static void arm_from_environment(void) {
    const char *words = getenv("FAULT");
    char folder[PATH_MAX];
    int which, error, lasting, torn;
    long n;
    size_t size;
    if (getenv("FAULT_CLOCK")) jump = atol(getenv("FAULT_CLOCK"));
    if (words && sscanf(words, "%d %ld %d %d %d %zu %4095s", &which, &n, &error, &lasting, &torn, &size, folder) == 7)
        fault_arm(which, n, error, lasting, torn, folder, size);
}
