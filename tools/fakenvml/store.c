/* The lock around a machine, changes to it, and the history of every change.
 *
 * A reader holds the lock and looks at the copy in force. A writer works on the other copy, appends
 * its lines to history.jsonl with one write, and then puts its copy in force. Whoever finds the
 * lock of a dead process repairs: a change whose lines are complete in the history is put in force,
 * any other is cut off.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__thread struct home* here;

static struct home* homes;
static pthread_mutex_t homes_lock = PTHREAD_MUTEX_INITIALIZER;

#define LINES_SIZE 65536
static __thread char lines[LINES_SIZE];
static __thread size_t lines_used;

static int64_t milliseconds_of(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t now_milliseconds(void) { return milliseconds_of(CLOCK_REALTIME); }

int64_t steady_milliseconds(void) { return milliseconds_of(CLOCK_MONOTONIC); }

static struct machine* in_force(void) {
    struct store* store = here->store;
    return &store->copies[__atomic_load_n(&store->in_force, __ATOMIC_ACQUIRE) & 1];
}

static struct machine* draft(void) {
    struct store* store = here->store;
    return &store->copies[(__atomic_load_n(&store->in_force, __ATOMIC_ACQUIRE) & 1) ^ 1];
}

static void put_in_force(void) {
    struct store* store = here->store;
    uint32_t next = (store->in_force & 1) ^ 1;
    __atomic_store_n(&store->in_force, next, __ATOMIC_RELEASE);
}

/* The holder of the lock died. Its change counts if every byte of its lines reached the history. */
static void repair(void) {
    struct stat history;
    struct machine* current = in_force();
    struct machine* unfinished = draft();
    if (fstat(here->history, &history) == 0) {
        uint64_t size = (uint64_t)history.st_size;
        bool is_newer = unfinished->sequence > current->sequence;
        if (is_newer && unfinished->history_bytes > current->history_bytes
            && unfinished->history_bytes == size) {
            put_in_force();
        } else if (size > current->history_bytes
                   && ftruncate(here->history, (off_t)current->history_bytes) != 0) {
            perror("fakenvml: cannot cut an unfinished line off the history");
        }
    }
    for (uint32_t gpu = 0; gpu < MAX_GPUS; gpu++) files_synchronise(in_force(), gpu);
    wake_all(&here->store->event_wake);
}

static void lock(void) {
    int code = pthread_mutex_lock(&here->store->mutex);
    if (code == EOWNERDEAD) {
        repair();
        pthread_mutex_consistent(&here->store->mutex);
    }
}

static void unlock(void) { pthread_mutex_unlock(&here->store->mutex); }

struct machine* read_begin(void) {
    lock();
    return in_force();
}

void read_end(void) { unlock(); }

struct machine* change_begin(void) {
    lock();
    lines_used = 0;
    struct machine* copy = draft();
    memcpy(copy, in_force(), sizeof *copy);
    return copy;
}

nvmlReturn_t change_abandon(nvmlReturn_t code) {
    unlock();
    return code;
}

/* A place in a change where a test may have this process killed: named like a function, by a fault
 * that kills. */
static void mortal(const char* place) {
    struct store* store = here->store;
    for (uint32_t index = 0; index < store->fault_count && index < MAX_FAULTS; index++) {
        const struct fault* fault = &store->faults[index];
        if (fault->code == FAULT_KILLS && strcmp(fault->function, place) == 0)
            kill(getpid(), SIGKILL);
    }
}

/* Writes the lines of the change; with a fault, only the first half of them. */
static bool write_history(void) {
    mortal("change-before-history");
    size_t half = lines_used / 2;
    if (here->store->fault_count > 0) {
        if (write(here->history, lines, half) != (ssize_t)half) return false;
        mortal("change-within-history");
        return write(here->history, lines + half, lines_used - half)
               == (ssize_t)(lines_used - half);
    }
    return write(here->history, lines, lines_used) == (ssize_t)lines_used;
}

/* After a change: brings /proc and /dev of the GPUs whose partitions differ up to date. */
static void show_partitions(void) {
    const struct machine *before = draft(), *after = in_force();
    for (uint32_t gpu = 0; gpu < MAX_GPUS; gpu++) {
        bool is_same = before->gpus[gpu].partition_changes == after->gpus[gpu].partition_changes;
        if (!is_same) files_synchronise(after, gpu);
    }
}

nvmlReturn_t change_commit(void) {
    struct machine* copy = draft();
    bool has_events = copy->event_count != in_force()->event_count;
    if (lines_used > 0) {
        uint64_t before = copy->history_bytes;
        /* Last: a repair believes a draft whose length is that of the file. */
        __atomic_store_n(&copy->history_bytes, before + lines_used, __ATOMIC_SEQ_CST);
        if (!write_history()) {
            if (ftruncate(here->history, (off_t)before) != 0) perror("fakenvml: history");
            return change_abandon(OPERATING_SYSTEM);
        }
    }
    mortal("change-after-history");
    put_in_force();
    mortal("change-in-force");
    show_partitions();
    unlock();
    if (has_events) wake_all(&here->store->event_wake);
    return SUCCESS;
}

static void program_name(char* name, size_t size) {
    name[0] = 0;
    FILE* file = fopen("/proc/self/comm", "re");
    if (file == NULL) return;
    if (fgets(name, (int)size, file) != NULL) name[strcspn(name, "\n\"\\")] = 0;
    fclose(file);
}

/* One line of the history. `format` gives further members of the JSON object, or "". */
void record(int gpu, const char* event, const char* format, ...) {
    struct machine* copy = draft();
    char program[64];
    program_name(program, sizeof program);
    char* at = lines + lines_used;
    size_t room = LINES_SIZE - lines_used;
    size_t used = (size_t)snprintf(
        at, room, "{\"sequence\":%llu,\"time\":%lld,\"pid\":%d,\"program\":\"%s\"",
        (unsigned long long)++copy->sequence, (long long)now_milliseconds(), getpid(), program);
    if (gpu >= 0) {
        used += (size_t)snprintf(at + used, room - used, ",\"gpu\":%d,\"uuid\":\"%s\"", gpu,
                                 copy->gpus[gpu].uuid);
    }
    used += (size_t)snprintf(at + used, room - used, ",\"event\":\"%s\"", event);
    if (format[0] != 0) {
        at[used++] = ',';
        va_list arguments;
        va_start(arguments, format);
        used += (size_t)vsnprintf(at + used, room - used, format, arguments);
        va_end(arguments);
    }
    used += (size_t)snprintf(at + used, room - used, "}\n");
    if (used < room) lines_used += used;
}

void wake_all(uint32_t* word) {
    __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* False when the time is over. Negative means no bound. A futex, since a process killed in a shared
 * condition variable blocks the others. */
bool wait_for_change(uint32_t* word, uint32_t value, int64_t milliseconds) {
    struct timespec bound = {milliseconds / 1000, (milliseconds % 1000) * 1000000};
    long code =
        syscall(SYS_futex, word, FUTEX_WAIT, value, milliseconds < 0 ? NULL : &bound, NULL, 0);
    return !(code == -1 && errno == ETIMEDOUT);
}

/* FAKE_NVML_HOME, else the directory above the driver root this library was loaded from. */
bool home_find(char* path, size_t size) {
    const char* given = getenv("FAKE_NVML_HOME");
    if (given != NULL && given[0] != 0) return (size_t)snprintf(path, size, "%s", given) < size;

    Dl_info self;
    char real[PATH_MAX];
    if (dladdr((void*)home_find, &self) == 0 || realpath(self.dli_fname, real) == NULL)
        return false;
    char* driver = strstr(real, "/driver/usr/");
    for (char* later = driver; later != NULL; later = strstr(later + 1, "/driver/usr/"))
        driver = later;
    if (driver == NULL) return false;
    *driver = 0;
    return (size_t)snprintf(path, size, "%s", real) < size;
}

static struct home* home_map(const char* path, uint64_t inode, int file) {
    struct home* home = calloc(1, sizeof *home);
    if (home == NULL) return NULL;
    char history[600];
    snprintf(home->path, sizeof home->path, "%s", path);
    snprintf(history, sizeof history, "%s/history.jsonl", path);
    home->inode = inode;
    home->history = open(history, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    home->store = mmap(NULL, sizeof(struct store), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    bool is_ours = home->store != MAP_FAILED && home->store->magic == STORE_MAGIC
                   && home->store->size == sizeof(struct store);
    if (home->history < 0 || !is_ours) {
        if (home->history >= 0) close(home->history);
        if (home->store != MAP_FAILED) munmap(home->store, sizeof(struct store));
        free(home);
        return NULL;
    }
    return home;
}

/* The machine in a directory, mapped once per process. NULL if there is none, or one of another
 * build. */
struct home* home_open(const char* path) {
    char name[600];
    struct stat state;
    snprintf(name, sizeof name, "%s/state", path);
    int file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0) return NULL;
    struct home* home = NULL;
    if (fstat(file, &state) == 0 && (size_t)state.st_size >= sizeof(struct store)) {
        pthread_mutex_lock(&homes_lock);
        for (home = homes; home != NULL; home = home->next) {
            if (home->inode == state.st_ino && strcmp(home->path, path) == 0) break;
        }
        if (home == NULL && (home = home_map(path, state.st_ino, file)) != NULL) {
            home->next = homes;
            homes = home;
        }
        pthread_mutex_unlock(&homes_lock);
    }
    close(file);
    return home;
}

static void mutex_make(pthread_mutex_t* mutex) {
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &shared);
    pthread_mutexattr_destroy(&shared);
}

/* Writes the first state of a machine next to its final name and renames it. */
int home_make(const char* path, const struct machine* machine) {
    char unfinished[600], finished[600];
    snprintf(unfinished, sizeof unfinished, "%s/state.new", path);
    snprintf(finished, sizeof finished, "%s/state", path);
    int file = open(unfinished, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0 || ftruncate(file, sizeof(struct store)) != 0) {
        if (file >= 0) close(file);
        return OPERATING_SYSTEM;
    }
    struct store* store = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (store == MAP_FAILED) return OPERATING_SYSTEM;
    store->magic = STORE_MAGIC;
    store->size = sizeof *store;
    mutex_make(&store->mutex);
    store->copies[0] = *machine;
    munmap(store, sizeof *store);
    return rename(unfinished, finished) == 0 ? SUCCESS : OPERATING_SYSTEM;
}
