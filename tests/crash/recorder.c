/* Writes down what a process does to its files, in the order in which it happens: for `tests.crash.power`, which builds from it what a
   power cut may leave. Preloaded; files are known by their inodes, names by the inode of their folder. What it cannot describe is an X. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define WEAK __attribute__((visibility("default")))
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;

__attribute__((constructor)) static void begin(void) {
    const char *place = getenv("PARLOUR_RECORD");
    if (place) out = syscall(SYS_openat, AT_FDCWD, place, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static void put(const void *data, size_t size) {
    while (size) {
        ssize_t n = syscall(SYS_write, out, data, size);
        if (n <= 0) abort();
        data = (const char *)data + n;
        size -= n;
    }
}

/* kind, two inodes, a number, a name, another name or data */
static void note(char kind, uint64_t a, uint64_t b, uint64_t number, const char *name, const void *data, uint64_t size) {
    if (out < 0) return;
    int before = errno;
    struct { uint64_t kind, a, b, number, named, size; } head = {kind, a, b, number, name ? strlen(name) : 0, size};
    put(&head, sizeof head);
    if (name) put(name, head.named);
    if (size) put(data, size);
    errno = before;
}

static int at_path(int dir, const char *path, struct stat *info) { return fstatat(dir, path, info, AT_SYMLINK_NOFOLLOW); }

/* the folder's inode and the last part of a path */
static uint64_t folder(int dir, const char *path, const char **name) {
    const char *slash = strrchr(path, '/');
    struct stat info;
    *name = slash ? slash + 1 : path;
    if (!slash) {
        if (fstatat(dir, ".", &info, 0)) return 0;
    } else {
        char *parent = strndup(path, slash == path ? 1 : slash - path);
        int failed = fstatat(dir, parent, &info, 0);
        free(parent);
        if (failed) return 0;
    }
    return info.st_ino;
}

static int regular(int fd, struct stat *info) { return !fstat(fd, info) && S_ISREG(info->st_mode); }

static int open_at(int dir, const char *path, int flags, mode_t mode) {
    struct stat info;
    pthread_mutex_lock(&lock);
    int there = !at_path(dir, path, &info);
    int fd = syscall(SYS_openat, dir, path, flags, mode);
    int before = errno;
    const char *name;
    if (fd >= 0 && !there && (flags & O_CREAT) && !fstat(fd, &info)) {
        uint64_t parent = folder(dir, path, &name);
        note('c', parent, info.st_ino, 0, name, 0, 0);
    } else if (fd >= 0 && there && (flags & O_TRUNC) && regular(fd, &info)) {
        note('t', info.st_ino, 0, 0, 0, 0, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = before;
    return fd;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, int); va_end(rest); }
WEAK int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
WEAK int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
WEAK int openat(int dir, const char *path, int flags, ...) { MODE return open_at(dir, path, flags, mode); }
WEAK int openat64(int dir, const char *path, int flags, ...) { MODE return open_at(dir, path, flags, mode); }

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset, int given) {
    struct stat info;
    pthread_mutex_lock(&lock);
    int file = regular(fd, &info);
    off_t place = given ? offset : (fcntl(fd, F_GETFL) & O_APPEND) ? info.st_size : lseek(fd, 0, SEEK_CUR);
    ssize_t n = given ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
    int before = errno;
    if (n > 0 && fd == 1) note('!', 0, 0, 0, 0, data, n);
    else if (n > 0 && file) note('w', info.st_ino, 0, place, 0, data, n);
    pthread_mutex_unlock(&lock);
    errno = before;
    return n;
}
WEAK ssize_t write(int fd, const void *data, size_t size) { return write_at(fd, data, size, 0, 0); }
WEAK ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }
WEAK ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }

WEAK ssize_t copy_file_range(int in, off64_t *in_at, int fd, off64_t *out_at, size_t size, unsigned flags) {
    struct stat info;
    pthread_mutex_lock(&lock);
    off_t place = out_at ? *out_at : lseek(fd, 0, SEEK_CUR);
    ssize_t n = syscall(SYS_copy_file_range, in, in_at, fd, out_at, size, flags);
    int before = errno;
    if (n > 0 && regular(fd, &info)) {
        char *data = malloc(n);
        off_t from = (in_at ? *in_at : lseek(in, 0, SEEK_CUR)) - n;
        if (pread(in, data, n, from) != n) abort();
        note('w', info.st_ino, 0, place, 0, data, n);
        free(data);
    }
    pthread_mutex_unlock(&lock);
    errno = before;
    return n;
}

#define LOCKED pthread_mutex_lock(&lock);
#define DONE(call, kind, a, b, number, name, data, size) \
    int result = call; int before = errno; \
    if (!result) note(kind, a, b, number, name, data, size); \
    pthread_mutex_unlock(&lock); errno = before; return result;

static uint64_t inode(int fd) { struct stat info; return fstat(fd, &info) ? 0 : info.st_ino; }
WEAK int ftruncate(int fd, off_t size) { LOCKED DONE(syscall(SYS_ftruncate, fd, size), 't', inode(fd), 0, size, 0, 0, 0) }
WEAK int ftruncate64(int fd, off_t size) { LOCKED DONE(syscall(SYS_ftruncate, fd, size), 't', inode(fd), 0, size, 0, 0, 0) }
static uint64_t inode_at(const char *path) { struct stat info; return at_path(AT_FDCWD, path, &info) ? 0 : info.st_ino; }
WEAK int truncate(const char *path, off_t size) { LOCKED DONE(syscall(SYS_truncate, path, size), 't', inode_at(path), 0, size, 0, 0, 0) }
WEAK int truncate64(const char *path, off_t size) { LOCKED DONE(syscall(SYS_truncate, path, size), 't', inode_at(path), 0, size, 0, 0, 0) }
WEAK int fsync(int fd) { LOCKED DONE(syscall(SYS_fsync, fd), 's', inode(fd), 0, 0, 0, 0, 0) }

/* every so many-th sync of a file fails, as the environment says; what was to be synced is then on the medium or not, for good */
static int fails(void) {
    static int count;
    const char *every = getenv("PARLOUR_SYNC_FAILS");
    return every && ++count % atoi(every) == 0;
}
WEAK int fdatasync(int fd) {
    LOCKED
    if (fails()) { note('e', inode(fd), 0, 0, 0, 0, 0); pthread_mutex_unlock(&lock); errno = EIO; return -1; }
    DONE(syscall(SYS_fdatasync, fd), 's', inode(fd), 0, 0, 0, 0, 0)
}
WEAK int syncfs(int fd) { LOCKED DONE(syscall(SYS_syncfs, fd), 'S', 0, 0, 0, 0, 0, 0) }

static uint64_t named(int dir, const char *path) { struct stat info; return at_path(dir, path, &info) ? 0 : info.st_ino; }

WEAK int mkdirat(int dir, const char *path, mode_t mode) {
    const char *name; LOCKED uint64_t parent = folder(dir, path, &name);
    DONE(syscall(SYS_mkdirat, dir, path, mode), 'm', parent, named(dir, path), 0, name, 0, 0)
}
WEAK int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

WEAK int linkat(int from, const char *old, int to, const char *path, int flags) {
    const char *name; LOCKED uint64_t parent = folder(to, path, &name);
    DONE(syscall(SYS_linkat, from, old, to, path, flags), 'l', parent, named(to, path), 0, name, 0, 0)
}
WEAK int link(const char *old, const char *path) { return linkat(AT_FDCWD, old, AT_FDCWD, path, 0); }

WEAK int renameat2(int from, const char *old, int to, const char *path, unsigned flags) {
    const char *name, *was; struct stat info;
    pthread_mutex_lock(&lock);
    uint64_t here = folder(from, old, &was), there = folder(to, path, &name);
    int result = syscall(SYS_renameat2, from, old, to, path, flags);
    int before = errno;
    if (!result) {
        at_path(to, path, &info);
        note(here == there && !flags ? 'r' : 'X', here, info.st_ino, 0, name, was, strlen(was));
    }
    pthread_mutex_unlock(&lock);
    errno = before;
    return result;
}
WEAK int renameat(int from, const char *old, int to, const char *path) { return renameat2(from, old, to, path, 0); }
WEAK int rename(const char *old, const char *path) { return renameat2(AT_FDCWD, old, AT_FDCWD, path, 0); }

WEAK int unlinkat(int dir, const char *path, int flags) {
    const char *name; LOCKED uint64_t parent = folder(dir, path, &name);
    DONE(syscall(SYS_unlinkat, dir, path, flags), 'u', parent, 0, 0, name, 0, 0)
}
WEAK int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
WEAK int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
WEAK int remove(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

#define STRANGE(call) pthread_mutex_lock(&lock); note('X', 0, 0, 0, __func__, 0, 0); pthread_mutex_unlock(&lock); return call;
struct iovec;
WEAK ssize_t writev(int fd, const struct iovec *v, int n) { struct stat info; if (regular(fd, &info)) { STRANGE(syscall(SYS_writev, fd, v, n)) } return syscall(SYS_writev, fd, v, n); }
WEAK int fallocate(int fd, int mode, off_t at, off_t size) { STRANGE(syscall(SYS_fallocate, fd, mode, at, size)) }
WEAK int posix_fallocate(int fd, off_t at, off_t size) { STRANGE(syscall(SYS_fallocate, fd, 0, at, size)) }
