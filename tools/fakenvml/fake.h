/* The shared state of one fake machine, and what every part of the library needs of it.
 *
 * The hardware lives in a directory, not in a process: a mapped file holds two copies of the
 * machine. A change is made on the copy that is not in force, written to history.jsonl, and only
 * then put in force by one store. A process that is killed at any instruction leaves either the old
 * or the new state, and a lock that the next process takes over.
 */
#ifndef FAKENVML_FAKE_H
#define FAKENVML_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

#define STRUCT(type, name) typedef struct {
#define FIELD(kind, name) kind name;
#define ARRAY(kind, name, length) kind name[length];
#define END(type) \
    }             \
    type;
#include "layouts.def"
#undef STRUCT
#undef FIELD
#undef ARRAY
#undef END

typedef int nvmlReturn_t;
typedef void* handle_t; /* a device, a GPU instance or a compute instance: see handles.c */

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    OPERATING_SYSTEM = 17,
    LIB_RM_VERSION_MISMATCH = 18,
    IN_USE = 19,
    NO_MEMORY = 20,
    INSUFFICIENT_RESOURCES = 23,
    ARGUMENT_VERSION_MISMATCH = 25,
};

#define MAX_GPUS 16
#define MAX_PROFILES 18 /* the GPU instance profiles NVML counts */
#define MAX_GI 15       /* ids 0..14: one per node of a tree of 8, 4, 2 and 1 memory slices */
#define MAX_CI 8
#define MAX_PROCESSES 64
#define MAX_EVENTS 128
#define MAX_FAULTS 32
#define MAX_MPS 16
#define MAX_MEMORY_LIMITS 128
#define NO_INSTANCE 0xFFFFFFFFu

#define EVENT_SINGLE_BIT_ECC 0x1ull
#define EVENT_DOUBLE_BIT_ECC 0x2ull
#define EVENT_XID 0x8ull
#define EVENT_MIG_CONFIG 0x100ull
#define EVENT_RECOVERY_ACTION 0x8000ull

struct profile {
    uint32_t present, id, compute_slices, memory_slices, max_instances, starts;
    uint32_t multiprocessors, copy_engines, decoders, encoders, jpeg_engines, ofa_engines;
    uint64_t memory_mib;
    char name[32];
};

struct compute_instance {
    uint32_t live, generation, profile, start, size, multiprocessors;
    char uuid[48];
};

struct gpu_instance {
    uint32_t live, generation, profile, start, size;
    struct compute_instance ci[MAX_CI];
};

enum process_kind { COMPUTE, GRAPHICS, MPS };

struct process {
    uint32_t pid, kind, gi, ci, sm_utilisation, memory_utilisation;
    uint64_t memory_bytes;
};

#define U32(name) uint32_t name;
#define I32(name) int32_t name;
#define U64(name) uint64_t name;
#define TEXT(name, length) char name[length];
struct gpu {
    uint32_t present, generation;
    uint32_t partition_changes; /* counts what the files under /proc and /dev show */
#include "fields.def"
    struct profile profiles[MAX_PROFILES];
    struct gpu_instance gi[MAX_GI];
    uint32_t process_count;
    struct process processes[MAX_PROCESSES];
};
#undef U32
#undef I32
#undef U64
#undef TEXT

struct event {
    uint64_t number, type, data;
    uint32_t gpu, gpu_generation, gi, ci;
};

struct mps_daemon {
    uint32_t pid, active_thread_percentage;
    char pipe_directory[160], pinned_memory_limit[64], visible_devices[160];
};

struct memory_limit {
    uint32_t is_set, gpu;
    uint64_t soft, hard;
    char cgroup[256];
};

struct machine {
    uint64_t sequence;      /* of the last line of the history */
    uint64_t history_bytes; /* the length of the history that belongs to this state */
    uint32_t gpu_count, next_generation;
    char name[64], driver_version[32], nvml_version[32];
    uint32_t cuda_version, caps_major;
    uint64_t event_count;
    struct event events[MAX_EVENTS];
    struct mps_daemon mps[MAX_MPS];
    struct memory_limit memory_limits[MAX_MEMORY_LIMITS];
    struct gpu gpus[MAX_GPUS];
};

struct fault {
    char function[80];
    int32_t code;
    uint32_t milliseconds, hangs;
};

#define FAULT_KILLS (-9) /* a code that kills the process instead of being returned */
#define STORE_MAGIC 0x444f5631u

struct store {
    uint32_t magic, size;
    pthread_mutex_t mutex;
    uint32_t in_force;   /* which of the two copies counts */
    uint32_t event_wake; /* futex words: changed after an event, and after a change of the faults */
    uint32_t fault_wake;
    uint32_t fault_count;
    struct fault faults[MAX_FAULTS];
    struct machine copies[2];
};

struct home {
    struct home* next;
    char path[512];
    uint64_t inode;
    int history;
    struct store* store;
};

/* store.c: the lock, changes, the history */
extern __thread struct home* here; /* the machine this thread talks to at the moment */
struct home* home_open(const char* path);
bool home_find(char* path, size_t size);
int home_make(const char* path, const struct machine* machine);
struct machine* read_begin(void);
void read_end(void);
struct machine* change_begin(void);
nvmlReturn_t change_commit(void);
nvmlReturn_t change_abandon(nvmlReturn_t code);
void record(int gpu, const char* event, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
void wake_all(uint32_t* word);
bool wait_for_change(uint32_t* word, uint32_t value, int64_t milliseconds);
int64_t now_milliseconds(void);    /* of the calendar */
int64_t steady_milliseconds(void); /* never jumps */

/* handles.c: numbers that name a device or an instance, valid as long as it lives */
enum kind { DEVICE = 1, MIG_DEVICE = 2, GPU_INSTANCE = 4, COMPUTE_INSTANCE = 5 };
struct target {
    enum kind kind;
    uint32_t gpu, gi, ci, generation;
};
handle_t device_handle(const struct machine* machine, uint32_t gpu);
handle_t instance_handle(const struct machine* machine, enum kind kind, uint32_t gpu, uint32_t gi,
                         uint32_t ci);
nvmlReturn_t locate(const struct machine* machine, handle_t handle, struct target* target);

/* session.c: what every exported function does first */
nvmlReturn_t entry(const char* function);

/* mig.c: the laws of partitioning, used by NVML functions and by the administrator's commands */
nvmlReturn_t mig_set_mode(struct machine* machine, uint32_t gpu, uint32_t mode,
                          nvmlReturn_t* activation);
nvmlReturn_t gi_create(struct machine* machine, uint32_t gpu, uint32_t profile_id,
                       const placement* at, uint32_t* gi);
nvmlReturn_t gi_destroy(struct machine* machine, uint32_t gpu, uint32_t gi);
nvmlReturn_t ci_create(struct machine* machine, uint32_t gpu, uint32_t gi, uint32_t profile_id,
                       const placement* at, uint32_t* ci);
nvmlReturn_t ci_destroy(struct machine* machine, uint32_t gpu, uint32_t gi, uint32_t ci);
int profile_by_id(const struct gpu* gpu, uint32_t id);

/* health.c */
void event_add(struct machine* machine, uint32_t gpu, uint64_t type, uint64_t data, uint32_t gi,
               uint32_t ci);

/* files.c: /proc and /dev of the machine */
void files_synchronise(const struct machine* machine, uint32_t gpu);

/* Every exported function begins with ENTER. WITH_DEVICE locks the machine and finds what a handle
 * names; the function ends with DONE, which unlocks. */
#define ENTER()                                \
    do {                                       \
        nvmlReturn_t fault_ = entry(__func__); \
        if (fault_ != SUCCESS) return fault_;  \
    } while (0)
#define REQUIRE(condition)                         \
    do {                                           \
        if (!(condition)) return INVALID_ARGUMENT; \
    } while (0)
#define WITH_TARGET(handle)                                   \
    struct machine* machine = read_begin();                   \
    struct target target;                                     \
    nvmlReturn_t located_ = locate(machine, handle, &target); \
    if (located_ != SUCCESS) return DONE(located_);           \
    const struct gpu* gpu = &machine->gpus[target.gpu];       \
    (void)gpu
#define DONE(code) (read_end(), (code))
#define VERSION_OF(type, number) ((uint32_t)(sizeof(type) | ((number) << 24)))

#endif
