/* The machine's owner at work: makes a machine, injects faults, acts as an administrator, prints
 * the state.
 *
 * One exported function takes a command and its arguments as text; tests, nvidia-smi and the MPS
 * daemon use it. NVML clients never do.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- members by name */

enum member_kind { MEMBER_U32, MEMBER_I32, MEMBER_U64, MEMBER_TEXT };

struct member {
    const char* name;
    enum member_kind kind;
    size_t offset, size;
};

#define U32(name) {#name, MEMBER_U32, offsetof(struct gpu, name), 4},
#define I32(name) {#name, MEMBER_I32, offsetof(struct gpu, name), 4},
#define U64(name) {#name, MEMBER_U64, offsetof(struct gpu, name), 8},
#define TEXT(name, length) {#name, MEMBER_TEXT, offsetof(struct gpu, name), length},
static const struct member members[] = {
#include "fields.def"
};
#undef U32
#undef I32
#undef U64
#undef TEXT
#define MEMBER_COUNT (sizeof members / sizeof *members)

static nvmlReturn_t set_member(struct gpu* gpu, const char* name, const char* value) {
    for (size_t index = 0; index < MEMBER_COUNT; index++) {
        const struct member* member = &members[index];
        if (strcmp(member->name, name) != 0) continue;
        char* at = (char*)gpu + member->offset;
        switch (member->kind) {
            case MEMBER_U32: *(uint32_t*)at = (uint32_t)strtoul(value, NULL, 0); break;
            case MEMBER_I32: *(int32_t*)at = (int32_t)strtol(value, NULL, 0); break;
            case MEMBER_U64: *(uint64_t*)at = strtoull(value, NULL, 0); break;
            case MEMBER_TEXT: snprintf(at, member->size, "%s", value); break;
        }
        return SUCCESS;
    }
    return NOT_FOUND;
}

/* ---- descriptions: lines of a name, a tab and a value; "gpu" begins another GPU */

static nvmlReturn_t add_profile(struct gpu* gpu, const char* text) {
    uint32_t index;
    struct profile profile = {.present = 1};
    int count = sscanf(text, "%u %u %u %u %u %u %lu %u %u %u %u %u %u %31s", &index, &profile.id,
                       &profile.compute_slices, &profile.memory_slices, &profile.max_instances,
                       &profile.starts, &profile.memory_mib, &profile.multiprocessors,
                       &profile.copy_engines, &profile.decoders, &profile.encoders,
                       &profile.jpeg_engines, &profile.ofa_engines, profile.name);
    if (count != 14 || index >= MAX_PROFILES) return INVALID_ARGUMENT;
    gpu->profiles[index] = profile;
    return SUCCESS;
}

static nvmlReturn_t set_machine(struct machine* machine, const char* name, const char* value) {
    if (strcmp(name, "name") == 0)
        snprintf(machine->name, sizeof machine->name, "%s", value);
    else if (strcmp(name, "driver_version") == 0)
        snprintf(machine->driver_version, sizeof machine->driver_version, "%s", value);
    else if (strcmp(name, "nvml_version") == 0)
        snprintf(machine->nvml_version, sizeof machine->nvml_version, "%s", value);
    else if (strcmp(name, "cuda_version") == 0)
        machine->cuda_version = (uint32_t)strtoul(value, NULL, 0);
    else if (strcmp(name, "caps_major") == 0)
        machine->caps_major = (uint32_t)strtoul(value, NULL, 0);
    else
        return NOT_FOUND;
    return SUCCESS;
}

static nvmlReturn_t add_gpu(struct machine* machine, struct gpu** gpu) {
    if (machine->gpu_count == MAX_GPUS) return INSUFFICIENT_SIZE;
    *gpu = &machine->gpus[machine->gpu_count++];
    memset(*gpu, 0, sizeof **gpu);
    (*gpu)->present = 1;
    (*gpu)->generation = ++machine->next_generation & 0x7FFFFF;
    return SUCCESS;
}

static nvmlReturn_t describe_line(struct machine* machine, struct gpu** gpu, char* line) {
    char* value = strchr(line, '\t');
    if (value != NULL) *value++ = 0;
    if (strcmp(line, "gpu") == 0) return add_gpu(machine, gpu);
    if (value == NULL) return INVALID_ARGUMENT;
    if (*gpu == NULL) return set_machine(machine, line, value);
    if (strcmp(line, "profile") == 0) return add_profile(*gpu, value);
    return set_member(*gpu, line, value);
}

static nvmlReturn_t describe(struct machine* machine, const char* description) {
    char *text = strdup(description), *rest = NULL;
    struct gpu* gpu = NULL;
    nvmlReturn_t code = SUCCESS;
    for (char* line = strtok_r(text, "\n", &rest); line != NULL && code == SUCCESS;
         line = strtok_r(NULL, "\n", &rest)) {
        code = describe_line(machine, &gpu, line);
    }
    free(text);
    return code;
}

static nvmlReturn_t make(const char* home, const char* description) {
    struct machine* machine = calloc(1, sizeof *machine);
    if (machine == NULL) return NO_MEMORY;
    nvmlReturn_t code = describe(machine, description);
    if (code == SUCCESS) code = home_make(home, machine);
    free(machine);
    if (code != SUCCESS) return code;
    here = home_open(home);
    if (here == NULL) return OPERATING_SYSTEM;
    struct machine* made = change_begin();
    record(-1, "machine-made", "\"machine\":\"%s\",\"gpus\":%u", made->name, made->gpu_count);
    return change_commit();
}

/* ---- the state as JSON */

struct text {
    char* at;
    size_t used, size;
};

__attribute__((format(printf, 2, 3))) static void print(struct text* text, const char* format,
                                                        ...) {
    va_list arguments;
    size_t room = text->used < text->size ? text->size - text->used : 0;
    va_start(arguments, format);
    text->used += (size_t)vsnprintf(room ? text->at + text->used : NULL, room, format, arguments);
    va_end(arguments);
}

static void print_string(struct text* text, const char* string) {
    print(text, "\"");
    for (; *string != 0; string++) {
        if (*string == '"' || *string == '\\') print(text, "\\");
        if ((unsigned char)*string >= 0x20) print(text, "%c", *string);
    }
    print(text, "\"");
}

static void print_member(struct text* text, const struct gpu* gpu, const struct member* member) {
    const char* at = (const char*)gpu + member->offset;
    print(text, ",\"%s\":", member->name);
    switch (member->kind) {
        case MEMBER_U32: print(text, "%u", *(const uint32_t*)at); break;
        case MEMBER_I32: print(text, "%d", *(const int32_t*)at); break;
        case MEMBER_U64: print(text, "%llu", (unsigned long long)*(const uint64_t*)at); break;
        case MEMBER_TEXT: print_string(text, at); break;
    }
}

static void print_instance(struct text* text, const struct gpu* gpu, uint32_t id) {
    const struct gpu_instance* gi = &gpu->gi[id];
    const struct profile* profile = &gpu->profiles[gi->profile];
    const char* between = "";
    print(text,
          "{\"id\":%u,\"profile\":\"%s\",\"profile_id\":%u,\"start\":%u,\"size\":%u,\"compute_"
          "instances\":[",
          id, profile->name, profile->id, gi->start, gi->size);
    for (uint32_t ci = 0; ci < MAX_CI; ci++) {
        const struct compute_instance* compute = &gi->ci[ci];
        if (!compute->live) continue;
        print(text, "%s{\"id\":%u,\"profile_id\":%u,\"start\":%u,\"size\":%u,\"uuid\":\"%s\"}",
              between, ci, compute->profile, compute->start, compute->size, compute->uuid);
        between = ",";
    }
    print(text, "]}");
}

static const char* const process_kinds[] = {"compute", "graphics", "mps"};

static void print_processes(struct text* text, const struct gpu* gpu) {
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        const struct process* process = &gpu->processes[index];
        print(text,
              "%s{\"pid\":%u,\"kind\":\"%s\",\"memory_bytes\":%llu,\"sm_utilisation\":%u,\"memory_"
              "utilisation\":%u",
              index ? "," : "", process->pid, process_kinds[process->kind],
              (unsigned long long)process->memory_bytes, process->sm_utilisation,
              process->memory_utilisation);
        if (process->gi != NO_INSTANCE)
            print(text, ",\"gi\":%u,\"ci\":%u", process->gi, process->ci);
        print(text, "}");
    }
}

static void print_gpu(struct text* text, const struct gpu* gpu, uint32_t index) {
    print(text, "{\"index\":%u", index);
    for (size_t member = 0; member < MEMBER_COUNT; member++)
        print_member(text, gpu, &members[member]);
    print(text, ",\"gpu_instances\":[");
    const char* between = "";
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        if (!gpu->gi[gi].live) continue;
        print(text, "%s", between);
        print_instance(text, gpu, gi);
        between = ",";
    }
    print(text, "],\"processes\":[");
    print_processes(text, gpu);
    print(text, "]}");
}

static void print_mps(struct text* text, const struct machine* machine) {
    const char* between = "";
    for (uint32_t index = 0; index < MAX_MPS; index++) {
        const struct mps_daemon* mps = &machine->mps[index];
        if (mps->pid == 0) continue;
        print(text, "%s{\"pid\":%u,\"active_thread_percentage\":%u,\"pipe_directory\":", between,
              mps->pid, mps->active_thread_percentage);
        print_string(text, mps->pipe_directory);
        print(text, ",\"pinned_memory_limit\":");
        print_string(text, mps->pinned_memory_limit);
        print(text, ",\"visible_devices\":");
        print_string(text, mps->visible_devices);
        print(text, "}");
        between = ",";
    }
}

static void print_memory_limits(struct text* text, const struct machine* machine) {
    const char* between = "";
    for (uint32_t index = 0; index < MAX_MEMORY_LIMITS; index++) {
        const struct memory_limit* limit = &machine->memory_limits[index];
        if (!limit->is_set) continue;
        print(text, "%s{\"gpu\":%u,\"soft_bytes\":%llu,\"hard_bytes\":%llu,\"cgroup\":", between,
              limit->gpu, (unsigned long long)limit->soft, (unsigned long long)limit->hard);
        print_string(text, limit->cgroup);
        print(text, "}");
        between = ",";
    }
}

/* As many characters as the whole needs, so that a caller with too little room can come again. */
static int snapshot(char* out, size_t size) {
    struct text text = {out, 0, size};
    struct machine* machine = read_begin();
    print(&text, "{\"name\":");
    print_string(&text, machine->name);
    print(
        &text,
        ",\"driver_version\":\"%s\",\"nvml_version\":\"%s\",\"cuda_version\":%u,\"caps_major\":%u",
        machine->driver_version, machine->nvml_version, machine->cuda_version, machine->caps_major);
    print(&text, ",\"sequence\":%llu,\"gpus\":[", (unsigned long long)machine->sequence);
    const char* between = "";
    for (uint32_t gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!machine->gpus[gpu].present) continue;
        print(&text, "%s", between);
        print_gpu(&text, &machine->gpus[gpu], gpu);
        between = ",";
    }
    print(&text, "],\"mps_daemons\":[");
    print_mps(&text, machine);
    print(&text, "],\"memory_limits\":[");
    print_memory_limits(&text, machine);
    print(&text, "]}");
    read_end();
    return (int)text.used;
}

/* ---- faults */

static nvmlReturn_t set_fault(const char* function, int code, uint32_t milliseconds,
                              uint32_t hangs) {
    struct store* store = here->store;
    read_begin();
    uint32_t index = 0;
    while (index < store->fault_count && strcmp(store->faults[index].function, function) != 0)
        index++;
    if (index == MAX_FAULTS) return DONE(INSUFFICIENT_SIZE);
    struct fault* fault = &store->faults[index];
    snprintf(fault->function, sizeof fault->function, "%s", function);
    fault->code = code;
    fault->milliseconds = milliseconds;
    fault->hangs = hangs;
    if (index == store->fault_count)
        __atomic_store_n(&store->fault_count, index + 1, __ATOMIC_RELEASE);
    read_end();
    wake_all(&store->fault_wake);
    return SUCCESS;
}

/* Takes the faults of one function away, or all of them, and lets whatever hangs in them go on. */
static nvmlReturn_t clear_faults(const char* function) {
    struct store* store = here->store;
    read_begin();
    uint32_t kept = 0;
    for (uint32_t index = 0; index < store->fault_count; index++) {
        bool is_kept = function != NULL && strcmp(store->faults[index].function, function) != 0;
        if (is_kept) store->faults[kept++] = store->faults[index];
    }
    __atomic_store_n(&store->fault_count, kept, __ATOMIC_RELEASE);
    read_end();
    wake_all(&store->fault_wake);
    return SUCCESS;
}

/* ---- changes of one GPU */

static nvmlReturn_t set_processes(struct machine* machine, uint32_t index, const char* list) {
    struct gpu* gpu = &machine->gpus[index];
    gpu->process_count = 0;
    while (*list != 0) {
        struct process process = {0};
        int length = 0;
        int count = sscanf(list, "%u %u %u %u %lu %u %u;%n", &process.pid, &process.kind,
                           &process.gi, &process.ci, &process.memory_bytes, &process.sm_utilisation,
                           &process.memory_utilisation, &length);
        if (count != 7 || length == 0 || process.kind > MPS) return INVALID_ARGUMENT;
        if (gpu->process_count == MAX_PROCESSES) return INSUFFICIENT_SIZE;
        bool is_in_instance = process.gi != NO_INSTANCE;
        if (is_in_instance && (process.gi >= MAX_GI || process.ci >= MAX_CI))
            return INVALID_ARGUMENT;
        if (is_in_instance && !gpu->gi[process.gi].ci[process.ci].live) return NOT_FOUND;
        gpu->processes[gpu->process_count++] = process;
        list += length;
    }
    record((int)index, "processes", "\"count\":%u", gpu->process_count);
    for (uint32_t number = 0; number < gpu->process_count; number++) {
        const struct process* process = &gpu->processes[number];
        record((int)index, "process", "\"process\":%u,\"gi\":%d,\"ci\":%d", process->pid,
               (int)process->gi, (int)process->ci);
    }
    return SUCCESS;
}

static void drop_instances(struct machine* machine, uint32_t index) {
    struct gpu* gpu = &machine->gpus[index];
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        if (!gpu->gi[gi].live) continue;
        for (uint32_t ci = 0; ci < MAX_CI; ci++) {
            if (gpu->gi[gi].ci[ci].live) ci_destroy(machine, index, gi, ci);
        }
        gi_destroy(machine, index, gi);
    }
}

/* What a reset of the GPU does: pending modes come into force, partitions and volatile counters are
 * gone. */
static nvmlReturn_t reset(struct machine* machine, uint32_t index, bool is_reload) {
    struct gpu* gpu = &machine->gpus[index];
    if (gpu->process_count > 0 || gpu->holders > 0) return IN_USE;
    drop_instances(machine, index);
    bool forgets_mode = is_reload && gpu->mig_without_reset;
    gpu->mig_mode = forgets_mode ? 0 : gpu->mig_pending;
    gpu->mig_pending = gpu->mig_mode;
    gpu->ecc_mode = gpu->ecc_pending_mode;
    gpu->ecc_corrected_volatile = gpu->ecc_uncorrected_volatile = 0;
    gpu->remapped_uncorrectable += gpu->remap_pending;
    gpu->remap_pending = gpu->retired_pending = 0;
    gpu->recovery_action = 0;
    gpu->compute_mode = is_reload ? 0 : gpu->compute_mode;
    gpu->time_slice = is_reload ? 0 : gpu->time_slice;
    gpu->partition_changes++;
    record((int)index, "reset", "\"mig_mode\":%u", gpu->mig_mode);
    return SUCCESS;
}

static nvmlReturn_t reload(struct machine* machine, const char* driver, const char* nvml,
                           const char* cuda) {
    for (uint32_t gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!machine->gpus[gpu].present) continue;
        nvmlReturn_t code = reset(machine, gpu, true);
        if (code != SUCCESS) return code;
        machine->gpus[gpu].lost = 0;
        machine->gpus[gpu].generation = ++machine->next_generation & 0x7FFFFF;
    }
    set_machine(machine, "driver_version", driver);
    set_machine(machine, "nvml_version", nvml);
    set_machine(machine, "cuda_version", cuda);
    record(-1, "driver-reloaded", "\"driver_version\":\"%s\"", machine->driver_version);
    return SUCCESS;
}

static nvmlReturn_t set_lost(struct machine* machine, uint32_t index, bool is_lost) {
    struct gpu* gpu = &machine->gpus[index];
    if (gpu->lost == is_lost) return SUCCESS;
    gpu->lost = is_lost;
    gpu->losses += is_lost;
    if (is_lost)
        event_add(machine, index, 0, 0, NO_INSTANCE,
                  NO_INSTANCE); /* wakes those who wait; matches no mask */
    record((int)index, is_lost ? "gpu-lost" : "gpu-restored", "%s", "\"bus\":true");
    return SUCCESS;
}

static nvmlReturn_t add_event(struct machine* machine, uint32_t index, uint64_t type, uint64_t data,
                              uint32_t gi, uint32_t ci) {
    event_add(machine, index, type, data, gi, ci);
    if (type == EVENT_XID) {
        machine->gpus[index].last_xid = (uint32_t)data;
        record((int)index, "xid", "\"xid\":%llu,\"gi\":%d,\"ci\":%d", (unsigned long long)data,
               (int)gi, (int)ci);
    } else {
        record((int)index, "event", "\"type\":%llu,\"data\":%llu", (unsigned long long)type,
               (unsigned long long)data);
    }
    return SUCCESS;
}

static nvmlReturn_t set_recorded(struct machine* machine, uint32_t index, const char* name,
                                 const char* value) {
    nvmlReturn_t code = set_member(&machine->gpus[index], name, value);
    if (code != SUCCESS) return code;
    if (strpbrk(value, "\"\\\n") != NULL) return INVALID_ARGUMENT;
    record((int)index, strcmp(name, "time_slice") == 0 ? "time-slice" : "set",
           "\"field\":\"%s\",\"value\":\"%s\"", name, value);
    return SUCCESS;
}

/* ---- MPS daemons */

static struct mps_daemon* mps_by_pid(struct machine* machine, uint32_t pid) {
    for (uint32_t index = 0; index < MAX_MPS; index++) {
        if (machine->mps[index].pid == pid) return &machine->mps[index];
    }
    return NULL;
}

/* Room for a new daemon: one that was killed has left its entry behind. */
static struct mps_daemon* mps_room(struct machine* machine) {
    for (uint32_t index = 0; index < MAX_MPS; index++) {
        uint32_t pid = machine->mps[index].pid;
        bool is_gone = pid != 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
        if (pid == 0 || is_gone) return &machine->mps[index];
    }
    return NULL;
}

static nvmlReturn_t mps(struct machine* machine, int argc, const char* const* argv) {
    const char *verb = argv[1], *value = argc > 3 ? argv[3] : "";
    uint32_t pid = (uint32_t)strtoul(argv[2], NULL, 0);
    bool is_start = strcmp(verb, "start") == 0;
    struct mps_daemon* daemon = is_start ? mps_room(machine) : mps_by_pid(machine, pid);
    if (daemon == NULL) return is_start ? INSUFFICIENT_SIZE : NOT_FOUND;
    if (strpbrk(value, "\"\\\n") != NULL) return INVALID_ARGUMENT;
    if (is_start) {
        *daemon = (struct mps_daemon){.pid = pid, .active_thread_percentage = 100};
        snprintf(daemon->pipe_directory, sizeof daemon->pipe_directory, "%s", value);
        snprintf(daemon->visible_devices, sizeof daemon->visible_devices, "%s",
                 argc > 4 ? argv[4] : "");
    } else if (strcmp(verb, "threads") == 0) {
        daemon->active_thread_percentage = (uint32_t)strtoul(value, NULL, 10);
    } else if (strcmp(verb, "memory") == 0) {
        size_t used = strlen(daemon->pinned_memory_limit);
        snprintf(daemon->pinned_memory_limit + used, sizeof daemon->pinned_memory_limit - used,
                 "%s%s", used ? "," : "", value);
    } else if (strcmp(verb, "stop") == 0) {
        memset(daemon, 0, sizeof *daemon);
    } else {
        return INVALID_ARGUMENT;
    }
    record(-1, "mps", "\"verb\":\"%s\",\"daemon\":%u,\"value\":\"%s\"", verb, pid, value);
    return SUCCESS;
}

/* ---- commands */

static uint32_t number(const char* text) { return (uint32_t)strtoul(text, NULL, 0); }

/* A compute instance as wide as its GPU instance. */
static nvmlReturn_t create_whole_ci(struct machine* machine, uint32_t gpu, uint32_t gi,
                                    uint32_t* id) {
    static const uint32_t by_slices[] = {0, 0, 1, 2, 3, 0, 0, 4};
    const struct gpu* board = &machine->gpus[gpu];
    if (gi >= MAX_GI || !board->gi[gi].live) return INVALID_ARGUMENT;
    return ci_create(machine, gpu, gi,
                     by_slices[board->profiles[board->gi[gi].profile].compute_slices], NULL, id);
}

static nvmlReturn_t change_gpu(struct machine* machine, int argc, const char* const* argv,
                               char* out, size_t size) {
    const char* verb = argv[0];
    uint32_t gpu = number(argv[1]), id = 0;
    nvmlReturn_t code = NOT_FOUND, activation = SUCCESS;
    if (gpu >= machine->gpu_count || !machine->gpus[gpu].present) return NOT_FOUND;
#define IS(name, arguments) (strcmp(verb, name) == 0 && argc == (arguments))
    if (IS("set", 4))
        code = set_recorded(machine, gpu, argv[2], argv[3]);
    else if (IS("event", 6))
        code = add_event(machine, gpu, strtoull(argv[2], NULL, 0), strtoull(argv[3], NULL, 0),
                         number(argv[4]), number(argv[5]));
    else if (IS("lose", 2))
        code = set_lost(machine, gpu, true);
    else if (IS("restore", 2))
        code = set_lost(machine, gpu, false);
    else if (IS("reset", 2))
        code = reset(machine, gpu, false);
    else if (IS("processes", 3))
        code = set_processes(machine, gpu, argv[2]);
    else if (IS("mig-mode", 3)) {
        code = mig_set_mode(machine, gpu, number(argv[2]), &activation);
        id = (uint32_t)activation;
    } else if (IS("gi-create", 3))
        code = gi_create(machine, gpu, number(argv[2]), NULL, &id);
    else if (IS("gi-create", 4)) {
        int profile = profile_by_id(&machine->gpus[gpu], number(argv[2]));
        placement at = {number(argv[3]),
                        profile < 0 ? 0 : machine->gpus[gpu].profiles[profile].memory_slices};
        code = gi_create(machine, gpu, number(argv[2]), &at, &id);
    } else if (IS("gi-destroy", 3))
        code = gi_destroy(machine, gpu, number(argv[2]));
    else if (IS("ci-create", 3))
        code = create_whole_ci(machine, gpu, number(argv[2]), &id);
    else if (IS("ci-create", 4))
        code = ci_create(machine, gpu, number(argv[2]), number(argv[3]), NULL, &id);
    else if (IS("ci-destroy", 4))
        code = ci_destroy(machine, gpu, number(argv[2]), number(argv[3]));
#undef IS
    if (code == SUCCESS && out != NULL) snprintf(out, size, "%u", id);
    return code;
}

static nvmlReturn_t change(int argc, const char* const* argv, char* out, size_t size) {
    struct machine* machine = change_begin();
    nvmlReturn_t code;
    if (strcmp(argv[0], "add") == 0 && argc == 2) {
        code = describe(machine, argv[1]);
        if (code == SUCCESS)
            record((int)machine->gpu_count - 1, "gpu-added", "\"gpus\":%u", machine->gpu_count);
    } else if (strcmp(argv[0], "reload") == 0 && argc == 4) {
        code = reload(machine, argv[1], argv[2], argv[3]);
    } else if (strcmp(argv[0], "mps") == 0 && argc >= 3) {
        code = mps(machine, argc, argv);
    } else {
        code = argc >= 2 ? change_gpu(machine, argc, argv, out, size) : INVALID_ARGUMENT;
    }
    return code == SUCCESS ? change_commit() : change_abandon(code);
}

/* Holds the lock until the process is killed: what a crash in the middle of a change leaves behind.
 */
__attribute__((noreturn)) static void hold(bool with_draft) {
    if (with_draft) {
        struct machine* machine = change_begin();
        machine->gpus[0].temperature = 999;
    } else {
        read_begin();
    }
    puts("held");
    fflush(stdout);
    while (true) wait_for_change(&(uint32_t){0}, 0, -1);
}

EXPORT int fake_control(const char* home, int argc, const char* const* argv, char* out,
                        size_t size) {
    if (argc < 1) return INVALID_ARGUMENT;
    if (strcmp(argv[0], "make") == 0) return argc == 2 ? make(home, argv[1]) : INVALID_ARGUMENT;
    here = home_open(home);
    if (here == NULL) return DRIVER_NOT_LOADED;
    if (strcmp(argv[0], "fault") == 0 && argc == 5) {
        return set_fault(argv[1], atoi(argv[2]), number(argv[3]), number(argv[4]));
    }
    if (strcmp(argv[0], "clear-faults") == 0) return clear_faults(argc > 1 ? argv[1] : NULL);
    if (strcmp(argv[0], "hold") == 0) hold(argc > 1);
    return change(argc, argv, out, size);
}

/* The number of characters the state needs as JSON; negative if there is no machine. */
EXPORT int fake_snapshot(const char* home, char* out, size_t size) {
    here = home_open(home);
    return here == NULL ? -1 : snapshot(out, size);
}

/* ---- layouts, for the test that compares them with nvidia-ml-py */

EXPORT int fake_layouts(char* out, size_t size) {
    struct text text = {out, 0, size};
#define STRUCT(type, name)    \
    {                         \
        typedef type current; \
        print(&text, #name " %zu", sizeof(current));
#define FIELD(kind, name) print(&text, " " #name "=%zu", offsetof(current, name));
#define ARRAY(kind, name, length) FIELD(kind, name)
#define END(type)       \
    print(&text, "\n"); \
    }
#include "layouts.def"
#undef STRUCT
#undef FIELD
#undef ARRAY
#undef END
    return (int)text.used;
}
