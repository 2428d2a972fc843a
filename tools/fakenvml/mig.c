/* The laws of partitioning: which GPU and compute instances may exist side by side.
 *
 * Works on a draft of the machine; the caller commits it. A placement is legal if the profile lists
 * its start, its memory slices are free, the profile's limit is not reached and the board has the
 * engines left. Ids follow the place, as on real boards: a tree of halves over the memory slices,
 * numbered from its root.
 */
#include "fake.h"

#include <string.h>

/* NVML's numbers of GPU instance profiles and compute instance profiles. */
enum { GI_1_SLICE = 0, GI_2_SLICE = 1, GI_3_SLICE = 2, GI_4_SLICE = 3, GI_7_SLICE = 4 };
enum {
    CI_1_SLICE = 0,
    CI_2_SLICE = 1,
    CI_3_SLICE = 2,
    CI_4_SLICE = 3,
    CI_7_SLICE = 4,
    CI_1_SLICE_REV1 = 7,
    CI_COUNT = 9
};

int profile_by_id(const struct gpu* gpu, uint32_t id) {
    for (int index = 0; index < MAX_PROFILES; index++) {
        if (gpu->profiles[index].present && gpu->profiles[index].id == id) return index;
    }
    return -1;
}

/* ---- mode */

static bool has_instances(const struct gpu* gpu) {
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        if (gpu->gi[gi].live) return true;
    }
    return false;
}

static bool has_clients(const struct gpu* gpu) {
    return gpu->process_count > 0 || gpu->holders > 0;
}

/* Hopper and newer switch at once, and refuse the call while they are used; the activation status says
 * nothing then. Ampere remembers the mode until the GPU is reset, which needs an idle GPU. */
nvmlReturn_t mig_set_mode(struct machine* machine, uint32_t index, uint32_t mode,
                          nvmlReturn_t* activation) {
    struct gpu* gpu = &machine->gpus[index];
    *activation = SUCCESS;
    if (!gpu->mig_capable) return NOT_SUPPORTED;
    if (mode > 1) return INVALID_ARGUMENT;
    if (gpu->mig_mode == mode && gpu->mig_pending == mode) return SUCCESS;
    if (gpu->mig_mode != mode && (has_clients(gpu) || has_instances(gpu))) {
        if (gpu->mig_without_reset) return IN_USE;
        *activation = IN_USE;
    } else if (gpu->mig_mode != mode && !gpu->mig_without_reset) {
        *activation = RESET_REQUIRED;
    }
    gpu->mig_pending = mode;
    if (*activation == SUCCESS) gpu->mig_mode = mode;
    gpu->partition_changes++;
    record((int)index, "mig-mode", "\"mode\":%u,\"pending\":%u", gpu->mig_mode, gpu->mig_pending);
    return SUCCESS;
}

/* ---- GPU instances */

static uint32_t slices(uint32_t start, uint32_t size) { return ((1u << size) - 1) << start; }

static uint32_t occupied(const struct gpu* gpu) {
    uint32_t mask = 0;
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        if (gpu->gi[gi].live) mask |= slices(gpu->gi[gi].start, gpu->gi[gi].size);
    }
    return mask;
}

struct engines {
    uint32_t multiprocessors, copy, decoders, encoders, jpeg, ofa;
};

static void add_engines(struct engines* sum, const struct profile* profile) {
    sum->multiprocessors += profile->multiprocessors;
    sum->copy += profile->copy_engines;
    sum->decoders += profile->decoders;
    sum->encoders += profile->encoders;
    sum->jpeg += profile->jpeg_engines;
    sum->ofa += profile->ofa_engines;
}

static uint32_t larger(uint32_t left, uint32_t right) { return left > right ? left : right; }

/* What the board has: the most that any one profile gets. */
static struct engines engines_of_board(const struct gpu* gpu) {
    struct engines most = {0};
    for (int index = 0; index < MAX_PROFILES; index++) {
        const struct profile* profile = &gpu->profiles[index];
        if (!profile->present) continue;
        most.multiprocessors = larger(most.multiprocessors, profile->multiprocessors);
        most.copy = larger(most.copy, profile->copy_engines);
        most.decoders = larger(most.decoders, profile->decoders);
        most.encoders = larger(most.encoders, profile->encoders);
        most.jpeg = larger(most.jpeg, profile->jpeg_engines);
        most.ofa = larger(most.ofa, profile->ofa_engines);
    }
    return most;
}

static bool engines_suffice(const struct gpu* gpu, const struct profile* wanted) {
    struct engines board = engines_of_board(gpu), sum = {0};
    add_engines(&sum, wanted);
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        if (gpu->gi[gi].live) add_engines(&sum, &gpu->profiles[gpu->gi[gi].profile]);
    }
    return sum.multiprocessors <= board.multiprocessors && sum.copy <= board.copy
           && sum.decoders <= board.decoders && sum.encoders <= board.encoders
           && sum.jpeg <= board.jpeg && sum.ofa <= board.ofa;
}

static uint32_t live_of_profile(const struct gpu* gpu, uint32_t profile) {
    uint32_t count = 0;
    for (uint32_t gi = 0; gi < MAX_GI; gi++)
        count += gpu->gi[gi].live && gpu->gi[gi].profile == profile;
    return count;
}

static bool fits(const struct gpu* gpu, uint32_t index, uint32_t start) {
    const struct profile* profile = &gpu->profiles[index];
    bool is_free = (occupied(gpu) & slices(start, profile->memory_slices)) == 0;
    return is_free && live_of_profile(gpu, index) < profile->max_instances
           && engines_suffice(gpu, profile);
}

/* Where the driver would put an instance if it may choose: the last place that is free, so that the
 * low slices stay together for large instances. */
static int chosen_start(const struct gpu* gpu, uint32_t index) {
    for (int start = (int)gpu->memory_slices - 1; start >= 0; start--) {
        if ((gpu->profiles[index].starts >> start & 1) && fits(gpu, index, (uint32_t)start))
            return start;
    }
    return -1;
}

nvmlReturn_t gi_create(struct machine* machine, uint32_t index, uint32_t profile_id,
                       const placement* at, uint32_t* id) {
    struct gpu* gpu = &machine->gpus[index];
    if (!gpu->mig_capable || !gpu->mig_mode) return NOT_SUPPORTED;
    int number = profile_by_id(gpu, profile_id);
    if (number < 0) return INVALID_ARGUMENT;
    const struct profile* profile = &gpu->profiles[number];
    int start = at != NULL ? (int)at->start : chosen_start(gpu, (uint32_t)number);
    if (at != NULL) {
        bool is_listed = at->start < 32 && (profile->starts >> at->start & 1)
                         && at->size == profile->memory_slices;
        if (!is_listed) return INVALID_ARGUMENT;
    }
    if (start < 0 || !fits(gpu, (uint32_t)number, (uint32_t)start)) return INSUFFICIENT_RESOURCES;

    uint32_t size = profile->memory_slices;
    *id = gpu->memory_slices / size - 1 + (uint32_t)start / size;
    struct gpu_instance* gi = &gpu->gi[*id];
    memset(gi, 0, sizeof *gi);
    gi->live = 1;
    gi->generation = ++machine->next_generation & 0x7FFFFF;
    gi->profile = (uint32_t)number;
    gi->start = (uint32_t)start;
    gi->size = size;
    gpu->partition_changes++;
    event_add(machine, index, EVENT_MIG_CONFIG, 0, *id, NO_INSTANCE);
    record(
        (int)index, "gpu-instance-created",
        "\"gi\":%u,\"profile\":\"%s\",\"profile_id\":%u,\"start\":%u,\"size\":%u,\"generation\":%u",
        *id, profile->name, profile->id, gi->start, gi->size, gi->generation);
    return SUCCESS;
}

static bool is_used(const struct gpu* gpu, uint32_t gi, uint32_t ci) {
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        const struct process* process = &gpu->processes[index];
        if (process->gi == gi && (ci == NO_INSTANCE || process->ci == ci)) return true;
    }
    return false;
}

nvmlReturn_t gi_destroy(struct machine* machine, uint32_t index, uint32_t id) {
    struct gpu* gpu = &machine->gpus[index];
    struct gpu_instance* gi = &gpu->gi[id];
    if (id >= MAX_GI || !gi->live) return INVALID_ARGUMENT;
    for (uint32_t ci = 0; ci < MAX_CI; ci++) {
        if (gi->ci[ci].live) return IN_USE;
    }
    if (is_used(gpu, id, NO_INSTANCE)) return IN_USE;
    gi->live = 0;
    gpu->partition_changes++;
    event_add(machine, index, EVENT_MIG_CONFIG, 0, id, NO_INSTANCE);
    record((int)index, "gpu-instance-destroyed",
           "\"gi\":%u,\"start\":%u,\"size\":%u,\"generation\":%u", id, gi->start, gi->size,
           gi->generation);
    return SUCCESS;
}

/* ---- compute instances */

static uint32_t ci_slices(uint32_t profile) {
    static const uint32_t count[CI_COUNT] = {1, 2, 3, 4, 7, 8, 6, 1, 7};
    return profile < CI_COUNT ? count[profile] : 0;
}

/* Multiprocessors of a compute instance. A profile as wide as its GPU instance gets all of them,
 * except on a 1g with twice the memory: there profile 0 gets those of a plain 1g and profile 7 gets
 * all. */
static uint32_t ci_multiprocessors(const struct gpu* gpu, const struct profile* parent,
                                   uint32_t profile) {
    static const int plain[] = {GI_1_SLICE, GI_2_SLICE, GI_3_SLICE, GI_4_SLICE, GI_7_SLICE};
    bool is_whole = ci_slices(profile) == parent->compute_slices;
    if (profile == CI_1_SLICE_REV1) return parent->multiprocessors;
    if (is_whole && parent->compute_slices > 1) return parent->multiprocessors;
    const struct profile* same_width = &gpu->profiles[plain[profile]];
    uint32_t share = same_width->present
                         ? same_width->multiprocessors
                         : parent->multiprocessors * ci_slices(profile) / parent->compute_slices;
    return share < parent->multiprocessors ? share : parent->multiprocessors;
}

static bool ci_profile_exists(const struct gpu* gpu, const struct profile* parent,
                              uint32_t profile) {
    if (profile == CI_1_SLICE_REV1) {
        return parent->compute_slices == 1
               && ci_multiprocessors(gpu, parent, CI_1_SLICE) < parent->multiprocessors;
    }
    return profile <= CI_7_SLICE && ci_slices(profile) <= parent->compute_slices;
}

static const struct profile* parent_of(const struct gpu* gpu, uint32_t gi) {
    return &gpu->profiles[gpu->gi[gi].profile];
}

static uint32_t ci_occupied(const struct gpu_instance* gi) {
    uint32_t mask = 0;
    for (uint32_t ci = 0; ci < MAX_CI; ci++) {
        if (gi->ci[ci].live) mask |= slices(gi->ci[ci].start, gi->ci[ci].size);
    }
    return mask;
}

/* Where a compute instance may start: multiples of its width, of 4 for three slices. */
static uint32_t ci_starts(const struct profile* parent, uint32_t profile) {
    uint32_t size = ci_slices(profile), step = size == 3 ? 4 : size, starts = 0;
    for (uint32_t start = 0; start + size <= parent->compute_slices; start += step)
        starts |= 1u << start;
    return starts;
}

static uint32_t count_bits(uint32_t mask) { return (uint32_t)__builtin_popcount(mask); }

nvmlReturn_t ci_create(struct machine* machine, uint32_t index, uint32_t gi_id, uint32_t profile,
                       const placement* at, uint32_t* id) {
    struct gpu* gpu = &machine->gpus[index];
    if (gi_id >= MAX_GI || !gpu->gi[gi_id].live) return INVALID_ARGUMENT;
    struct gpu_instance* gi = &gpu->gi[gi_id];
    const struct profile* parent = parent_of(gpu, gi_id);
    if (profile >= CI_COUNT) return INVALID_ARGUMENT;
    if (!ci_profile_exists(gpu, parent, profile)) return NOT_SUPPORTED;

    uint32_t size = ci_slices(profile), starts = ci_starts(parent, profile),
             taken = ci_occupied(gi);
    if (at != NULL) {
        if (at->start >= 32 || !(starts >> at->start & 1) || at->size != size)
            return INVALID_ARGUMENT;
        starts = 1u << at->start;
    }
    uint32_t start = 0;
    while (start < 32 && !((starts >> start & 1) && (taken & slices(start, size)) == 0)) start++;
    if (start == 32) return INSUFFICIENT_RESOURCES;
    for (*id = 0; *id < MAX_CI && gi->ci[*id].live; ++*id) continue;
    if (*id == MAX_CI) return INSUFFICIENT_RESOURCES;

    struct compute_instance* ci = &gi->ci[*id];
    memset(ci, 0, sizeof *ci);
    ci->live = 1;
    ci->generation = ++machine->next_generation & 0x7FFFFF;
    ci->profile = profile;
    ci->start = start;
    ci->size = size;
    ci->multiprocessors = ci_multiprocessors(gpu, parent, profile);
    /* Like the board's own, but of this incarnation: re-creation gives another one. */
    char board[19];
    snprintf(board, sizeof board, "%s", gpu->uuid + strlen("GPU-"));
    snprintf(ci->uuid, sizeof ci->uuid, "MIG-%s-%04x-%08x%04x", board, 0x5000 | gi_id << 4 | *id,
             ci->generation, index);
    gpu->partition_changes++;
    event_add(machine, index, EVENT_MIG_CONFIG, 0, gi_id, *id);
    record((int)index, "compute-instance-created",
           "\"gi\":%u,\"ci\":%u,\"profile_id\":%u,\"start\":%u,\"size\":%u,\"mig_uuid\":\"%s\","
           "\"generation\":%u",
           gi_id, *id, profile, start, size, ci->uuid, ci->generation);
    return SUCCESS;
}

nvmlReturn_t ci_destroy(struct machine* machine, uint32_t index, uint32_t gi_id, uint32_t id) {
    struct gpu* gpu = &machine->gpus[index];
    if (gi_id >= MAX_GI || id >= MAX_CI || !gpu->gi[gi_id].live) return INVALID_ARGUMENT;
    struct compute_instance* ci = &gpu->gi[gi_id].ci[id];
    if (!ci->live) return INVALID_ARGUMENT;
    if (is_used(gpu, gi_id, id)) return IN_USE;
    ci->live = 0;
    gpu->partition_changes++;
    event_add(machine, index, EVENT_MIG_CONFIG, 0, gi_id, id);
    record((int)index, "compute-instance-destroyed",
           "\"gi\":%u,\"ci\":%u,\"mig_uuid\":\"%s\",\"generation\":%u", gi_id, id, ci->uuid,
           ci->generation);
    return SUCCESS;
}

/* ---- questions, for mig_api.c */

uint32_t gi_remaining(const struct gpu* gpu, uint32_t index) {
    struct gpu trial = *gpu;
    uint32_t count = 0;
    for (uint32_t start = 0; start < 32; start++) {
        const struct profile* profile = &trial.profiles[index];
        if (!(profile->starts >> start & 1) || !fits(&trial, index, start)) continue;
        uint32_t id =
            trial.memory_slices / profile->memory_slices - 1 + start / profile->memory_slices;
        trial.gi[id] = (struct gpu_instance){
            .live = 1, .profile = index, .start = start, .size = profile->memory_slices};
        count++;
    }
    return count;
}

bool ci_profile_info_of(const struct gpu* gpu, uint32_t gi, uint32_t profile, ci_profile_info* info,
                        char* name, size_t size) {
    const struct profile* parent = parent_of(gpu, gi);
    if (!ci_profile_exists(gpu, parent, profile)) return false;
    info->id = profile;
    info->sliceCount = ci_slices(profile);
    info->instanceCount = count_bits(ci_starts(parent, profile));
    info->multiprocessorCount = ci_multiprocessors(gpu, parent, profile);
    info->sharedCopyEngineCount = parent->copy_engines;
    info->sharedDecoderCount = parent->decoders;
    info->sharedEncoderCount = parent->encoders;
    info->sharedJpegCount = parent->jpeg_engines;
    info->sharedOfaCount = parent->ofa_engines;
    bool is_whole = info->sliceCount == parent->compute_slices;
    if (is_whole)
        snprintf(name, size, "MIG %s", parent->name);
    else
        snprintf(name, size, "MIG %uc.%s", info->sliceCount, parent->name);
    return true;
}

uint32_t ci_placements_of(const struct gpu* gpu, uint32_t gi, uint32_t profile, bool only_free,
                          placement* out) {
    const struct profile* parent = parent_of(gpu, gi);
    uint32_t starts = ci_starts(parent, profile), size = ci_slices(profile), count = 0;
    uint32_t taken = only_free ? ci_occupied(&gpu->gi[gi]) : 0;
    for (uint32_t start = 0; start < 32; start++) {
        if (!(starts >> start & 1) || (taken & slices(start, size))) continue;
        if (out != NULL) out[count] = (placement){start, size};
        count++;
    }
    return count;
}
