/* Handles: a number that holds what it names and which incarnation of it.
 *
 * Instances get a new generation when they are created, so the handle of a destroyed instance never
 * names its successor. The number looks like an address but is never one.
 */
#include "fake.h"

#define MARK 0x4Dull

static handle_t encode(enum kind kind, uint32_t gpu, uint32_t gi, uint32_t ci,
                       uint32_t generation) {
    uint64_t number = MARK << 40 | (uint64_t)kind << 36 | (uint64_t)gpu << 31 | (uint64_t)gi << 27
                      | (uint64_t)ci << 23 | (generation & 0x7FFFFF);
    return (handle_t)(uintptr_t)number;
}

handle_t device_handle(const struct machine* machine, uint32_t gpu) {
    return encode(DEVICE, gpu, 0, 0, machine->gpus[gpu].generation);
}

handle_t instance_handle(const struct machine* machine, enum kind kind, uint32_t gpu, uint32_t gi,
                         uint32_t ci) {
    const struct gpu_instance* instance = &machine->gpus[gpu].gi[gi];
    if (kind == GPU_INSTANCE) return encode(kind, gpu, gi, 0, instance->generation);
    return encode(kind, gpu, gi, ci, instance->ci[ci].generation);
}

/* What a handle names. GPU_IS_LOST for a GPU off the bus, INVALID_ARGUMENT for what never was or is
 * no more. */
nvmlReturn_t locate(const struct machine* machine, handle_t handle, struct target* target) {
    uint64_t number = (uint64_t)(uintptr_t)handle;
    if (number >> 40 != MARK) return INVALID_ARGUMENT;
    target->kind = number >> 36 & 7;
    target->gpu = number >> 31 & 31;
    target->gi = number >> 27 & 15;
    target->ci = number >> 23 & 15;
    target->generation = number & 0x7FFFFF;
    if (target->gpu >= machine->gpu_count || target->gi >= MAX_GI || target->ci >= MAX_CI)
        return INVALID_ARGUMENT;

    const struct gpu* gpu = &machine->gpus[target->gpu];
    if (!gpu->present) return INVALID_ARGUMENT;
    if (gpu->lost) return GPU_IS_LOST;
    if (target->kind == DEVICE) {
        bool is_same = target->generation == (gpu->generation & 0x7FFFFF);
        target->gi = target->ci = NO_INSTANCE;
        return is_same ? SUCCESS : INVALID_ARGUMENT;
    }
    const struct gpu_instance* gi = &gpu->gi[target->gi];
    if (target->kind == GPU_INSTANCE) {
        return gi->live && gi->generation == target->generation ? SUCCESS : INVALID_ARGUMENT;
    }
    const struct compute_instance* ci = &gi->ci[target->ci];
    return gi->live && ci->live && ci->generation == target->generation ? SUCCESS
                                                                        : INVALID_ARGUMENT;
}
