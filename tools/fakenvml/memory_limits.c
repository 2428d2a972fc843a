/* Memory limits of a GPU for a cgroup: a soft one that is guaranteed and a hard one that is never
 * exceeded.
 *
 * A limit lives as long as its cgroup's directory. What a cgroup uses is the memory of its
 * processes on the GPU.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNLIMITED UINT64_MAX

static struct memory_limit* limit_of(struct machine* machine, uint32_t gpu, const char* cgroup) {
    for (uint32_t index = 0; index < MAX_MEMORY_LIMITS; index++) {
        struct memory_limit* limit = &machine->memory_limits[index];
        if (limit->is_set && limit->gpu == gpu && strcmp(limit->cgroup, cgroup) == 0) return limit;
    }
    return NULL;
}

/* Limits of cgroups that are gone are free again. */
static struct memory_limit* free_limit(struct machine* machine) {
    for (uint32_t index = 0; index < MAX_MEMORY_LIMITS; index++) {
        struct memory_limit* limit = &machine->memory_limits[index];
        if (!limit->is_set || access(limit->cgroup, F_OK) != 0) return limit;
    }
    return NULL;
}

static bool is_in_cgroup(uint32_t pid, const char* cgroup) {
    char path[300], line[32];
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    FILE* file = fopen(path, "re");
    bool is_member = false;
    while (file != NULL && !is_member && fgets(line, sizeof line, file) != NULL) {
        is_member = strtoul(line, NULL, 10) == pid;
    }
    if (file != NULL) fclose(file);
    return is_member;
}

static nvmlReturn_t check(const struct machine* machine, handle_t device, const char* cgroup,
                          struct target* target) {
    nvmlReturn_t code = locate(machine, device, target);
    if (code != SUCCESS) return code;
    if (target->kind != DEVICE || !machine->gpus[target->gpu].memory_limits_supported)
        return NOT_SUPPORTED;
    if (strlen(cgroup) >= sizeof machine->memory_limits[0].cgroup
        || strpbrk(cgroup, "\"\\\n") != NULL)
        return INVALID_ARGUMENT;
    return access(cgroup, F_OK) == 0 ? SUCCESS : OPERATING_SYSTEM;
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(handle_t device, const memory_limits_set* wanted) {
    ENTER();
    REQUIRE(wanted != NULL && wanted->nameSpace != NULL && wanted->softLimit <= wanted->hardLimit);
    struct machine* machine = change_begin();
    struct target target;
    nvmlReturn_t code = check(machine, device, wanted->nameSpace, &target);
    if (code != SUCCESS) return change_abandon(code);
    uint64_t total = machine->gpus[target.gpu].memory_bytes;
    bool is_clear = wanted->softLimit == 0 && wanted->hardLimit == UNLIMITED;
    bool is_too_large =
        wanted->softLimit > total || (wanted->hardLimit > total && wanted->hardLimit != UNLIMITED);
    if (is_too_large) return change_abandon(INVALID_ARGUMENT);

    struct memory_limit* limit = limit_of(machine, target.gpu, wanted->nameSpace);
    if (limit == NULL) limit = free_limit(machine);
    if (limit == NULL) return change_abandon(INSUFFICIENT_RESOURCES);
    *limit = (struct memory_limit){.is_set = !is_clear,
                                   .gpu = target.gpu,
                                   .soft = wanted->softLimit,
                                   .hard = wanted->hardLimit};
    snprintf(limit->cgroup, sizeof limit->cgroup, "%s", wanted->nameSpace);
    record((int)target.gpu, is_clear ? "memory-limit-cleared" : "memory-limit",
           "\"cgroup\":\"%s\",\"soft\":%llu,\"hard\":%llu", limit->cgroup,
           (unsigned long long)limit->soft, (unsigned long long)limit->hard);
    return change_commit();
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(handle_t device, memory_limits_get* limits) {
    ENTER();
    REQUIRE(limits != NULL && limits->nameSpace != NULL);
    struct machine* machine = read_begin();
    struct target target;
    nvmlReturn_t code = check(machine, device, limits->nameSpace, &target);
    if (code != SUCCESS) return DONE(code);
    const struct memory_limit* limit = limit_of(machine, target.gpu, limits->nameSpace);
    if (limit == NULL) return DONE(NOT_FOUND);
    const struct gpu* gpu = &machine->gpus[target.gpu];
    limits->softLimit = limit->soft;
    limits->hardLimit = limit->hard;
    limits->currentUsed = 0;
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        const struct process* process = &gpu->processes[index];
        if (is_in_cgroup(process->pid, limit->cgroup)) limits->currentUsed += process->memory_bytes;
    }
    return DONE(SUCCESS);
}
