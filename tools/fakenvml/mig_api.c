/* NVML's functions for partitioning: they translate handles and structures, mig.c decides. */
#include "fake.h"

#include <string.h>

#define MIB_NAME 96

uint32_t gi_remaining(const struct gpu* gpu, uint32_t index);
bool ci_profile_info_of(const struct gpu* gpu, uint32_t gi, uint32_t profile, ci_profile_info* info,
                        char* name, size_t size);
uint32_t ci_placements_of(const struct gpu* gpu, uint32_t gi, uint32_t profile, bool only_free,
                          placement* out);

enum { CI_PROFILE_COUNT = 9 };

#define ONLY(wanted) \
    if (target.kind != (wanted)) return DONE(INVALID_ARGUMENT)

/* Locks for a change and finds what a handle names. */
#define CHANGE_TARGET(handle, wanted)                                                \
    struct machine* machine = change_begin();                                        \
    struct target target;                                                            \
    nvmlReturn_t located_ = locate(machine, handle, &target);                        \
    if (located_ == SUCCESS && target.kind != (wanted)) located_ = INVALID_ARGUMENT; \
    if (located_ != SUCCESS) return change_abandon(located_)

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(handle_t device, unsigned int* current,
                                         unsigned int* pending) {
    ENTER();
    REQUIRE(current != NULL && pending != NULL);
    WITH_TARGET(device);
    if (!gpu->mig_capable) return DONE(NOT_SUPPORTED);
    *current = gpu->mig_mode;
    *pending = gpu->mig_pending;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceSetMigMode(handle_t device, unsigned int mode,
                                         nvmlReturn_t* activation) {
    ENTER();
    REQUIRE(activation != NULL);
    CHANGE_TARGET(device, DEVICE);
    nvmlReturn_t code = mig_set_mode(machine, target.gpu, mode, activation);
    return code == SUCCESS ? change_commit() : change_abandon(code);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(handle_t device, unsigned int* count) {
    ENTER();
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    ONLY(DEVICE);
    *count = gpu->mig_mode ? gpu->mig_max_devices : 0;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(handle_t device, unsigned int* is_mig) {
    ENTER();
    REQUIRE(is_mig != NULL);
    WITH_TARGET(device);
    *is_mig = target.kind == MIG_DEVICE;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(handle_t device, unsigned int index,
                                                        handle_t* mig) {
    ENTER();
    REQUIRE(mig != NULL);
    WITH_TARGET(device);
    ONLY(DEVICE);
    if (!gpu->mig_capable) return DONE(NOT_SUPPORTED);
    if (!gpu->mig_mode) return DONE(NOT_FOUND);
    if (index >= gpu->mig_max_devices) return DONE(INVALID_ARGUMENT);
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        for (uint32_t ci = 0; gpu->gi[gi].live && ci < MAX_CI; ci++) {
            if (!gpu->gi[gi].ci[ci].live || index-- > 0) continue;
            *mig = instance_handle(machine, MIG_DEVICE, target.gpu, gi, ci);
            return DONE(SUCCESS);
        }
    }
    return DONE(NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle_t mig, handle_t* device) {
    ENTER();
    REQUIRE(device != NULL);
    WITH_TARGET(mig);
    ONLY(MIG_DEVICE);
    *device = device_handle(machine, target.gpu);
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(handle_t mig, unsigned int* id) {
    ENTER();
    REQUIRE(id != NULL);
    WITH_TARGET(mig);
    ONLY(MIG_DEVICE);
    *id = target.gi;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(handle_t mig, unsigned int* id) {
    ENTER();
    REQUIRE(id != NULL);
    WITH_TARGET(mig);
    ONLY(MIG_DEVICE);
    *id = target.ci;
    return DONE(SUCCESS);
}

static nvmlReturn_t attributes_of(handle_t device, device_attributes* attributes) {
    REQUIRE(attributes != NULL);
    WITH_TARGET(device);
    ONLY(MIG_DEVICE);
    const struct profile* profile = &gpu->profiles[gpu->gi[target.gi].profile];
    const struct compute_instance* ci = &gpu->gi[target.gi].ci[target.ci];
    attributes->multiprocessorCount = ci->multiprocessors;
    attributes->sharedCopyEngineCount = profile->copy_engines;
    attributes->sharedDecoderCount = profile->decoders;
    attributes->sharedEncoderCount = profile->encoders;
    attributes->sharedJpegCount = profile->jpeg_engines;
    attributes->sharedOfaCount = profile->ofa_engines;
    attributes->gpuInstanceSliceCount = profile->compute_slices;
    attributes->computeInstanceSliceCount = ci->size;
    attributes->memorySizeMB = profile->memory_mib;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes(handle_t device, device_attributes* attributes) {
    ENTER();
    return attributes_of(device, attributes);
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(handle_t device, device_attributes* attributes) {
    ENTER();
    return attributes_of(device, attributes);
}

/* ---- GPU instance profiles */

static void profile_out(const struct profile* profile, gi_profile_info* info) {
    info->id = profile->id;
    info->isP2pSupported = 0;
    info->sliceCount = profile->compute_slices;
    info->instanceCount = profile->max_instances;
    info->multiprocessorCount = profile->multiprocessors;
    info->copyEngineCount = profile->copy_engines;
    info->decoderCount = profile->decoders;
    info->encoderCount = profile->encoders;
    info->jpegCount = profile->jpeg_engines;
    info->ofaCount = profile->ofa_engines;
    info->memorySizeMB = profile->memory_mib;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(handle_t device, unsigned int profile,
                                                        gi_profile_info* info) {
    ENTER();
    REQUIRE(info != NULL && profile < MAX_PROFILES);
    WITH_TARGET(device);
    ONLY(DEVICE);
    if (!gpu->mig_capable || !gpu->profiles[profile].present) return DONE(NOT_SUPPORTED);
    profile_out(&gpu->profiles[profile], info);
    return DONE(SUCCESS);
}

/* Versions 2 and 3 share all members up to the name but for the P2P flag, which 3 replaced by a
 * mask at its end. */
static nvmlReturn_t profile_out_versioned(const struct profile* profile, gi_profile_info_v2* info) {
    gi_profile_info figures;
    profile_out(profile, &figures);
    gi_profile_info_v2 second = {info->version,
                                 figures.id,
                                 figures.isP2pSupported,
                                 figures.sliceCount,
                                 figures.instanceCount,
                                 figures.multiprocessorCount,
                                 figures.copyEngineCount,
                                 figures.decoderCount,
                                 figures.encoderCount,
                                 figures.jpegCount,
                                 figures.ofaCount,
                                 figures.memorySizeMB,
                                 {0}};
    snprintf(second.name, sizeof second.name, "MIG %s", profile->name);
    if (info->version == VERSION_OF(gi_profile_info_v2, 2)) {
        *info = second;
        return SUCCESS;
    }
    if (info->version != VERSION_OF(gi_profile_info_v3, 3)) return ARGUMENT_VERSION_MISMATCH;
    gi_profile_info_v3* third = (gi_profile_info_v3*)info;
    *third = (gi_profile_info_v3){info->version,
                                  figures.id,
                                  figures.sliceCount,
                                  figures.instanceCount,
                                  figures.multiprocessorCount,
                                  figures.copyEngineCount,
                                  figures.decoderCount,
                                  figures.encoderCount,
                                  figures.jpegCount,
                                  figures.ofaCount,
                                  figures.memorySizeMB,
                                  {0},
                                  0};
    memcpy(third->name, second.name, sizeof third->name);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(handle_t device, unsigned int profile,
                                                         gi_profile_info_v2* info) {
    ENTER();
    REQUIRE(info != NULL && profile < MAX_PROFILES);
    WITH_TARGET(device);
    ONLY(DEVICE);
    if (!gpu->mig_capable || !gpu->profiles[profile].present) return DONE(NOT_SUPPORTED);
    return DONE(profile_out_versioned(&gpu->profiles[profile], info));
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(handle_t device, unsigned int id,
                                                             gi_profile_info_v2* info) {
    ENTER();
    REQUIRE(info != NULL);
    WITH_TARGET(device);
    ONLY(DEVICE);
    int profile = profile_by_id(gpu, id);
    if (!gpu->mig_capable || profile < 0) return DONE(NOT_SUPPORTED);
    return DONE(profile_out_versioned(&gpu->profiles[profile], info));
}

static nvmlReturn_t placements(handle_t device, unsigned int id, placement* out,
                               unsigned int* count) {
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    ONLY(DEVICE);
    int profile = profile_by_id(gpu, id);
    if (!gpu->mig_capable || profile < 0) return DONE(NOT_SUPPORTED);
    *count = 0;
    for (uint32_t start = 0; start < 32; start++) {
        if (!(gpu->profiles[profile].starts >> start & 1)) continue;
        if (out != NULL) out[*count] = (placement){start, gpu->profiles[profile].memory_slices};
        ++*count;
    }
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(handle_t device, unsigned int id,
                                                               placement* out,
                                                               unsigned int* count) {
    ENTER();
    return placements(device, id, out, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle_t device, unsigned int id,
                                                                  placement* out,
                                                                  unsigned int* count) {
    ENTER();
    return placements(device, id, out, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(handle_t device, unsigned int id,
                                                              unsigned int* count) {
    ENTER();
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    ONLY(DEVICE);
    int profile = profile_by_id(gpu, id);
    if (!gpu->mig_mode || profile < 0) return DONE(NOT_SUPPORTED);
    *count = gi_remaining(gpu, (uint32_t)profile);
    return DONE(SUCCESS);
}

/* ---- GPU instances */

static nvmlReturn_t create_gi(handle_t device, unsigned int id, const placement* at,
                              handle_t* instance) {
    REQUIRE(instance != NULL);
    CHANGE_TARGET(device, DEVICE);
    uint32_t gi;
    nvmlReturn_t code = gi_create(machine, target.gpu, id, at, &gi);
    if (code != SUCCESS) return change_abandon(code);
    *instance = instance_handle(machine, GPU_INSTANCE, target.gpu, gi, 0);
    return change_commit();
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(handle_t device, unsigned int id,
                                                handle_t* instance) {
    ENTER();
    return create_gi(device, id, NULL, instance);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(handle_t device, unsigned int id,
                                                             const placement* at,
                                                             handle_t* instance) {
    ENTER();
    REQUIRE(at != NULL);
    return create_gi(device, id, at, instance);
}

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(handle_t instance) {
    ENTER();
    CHANGE_TARGET(instance, GPU_INSTANCE);
    nvmlReturn_t code = gi_destroy(machine, target.gpu, target.gi);
    return code == SUCCESS ? change_commit() : change_abandon(code);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(handle_t device, unsigned int id, handle_t* out,
                                              unsigned int* count) {
    ENTER();
    REQUIRE(out != NULL && count != NULL);
    WITH_TARGET(device);
    ONLY(DEVICE);
    int profile = profile_by_id(gpu, id);
    if (!gpu->mig_mode || profile < 0) return DONE(NOT_SUPPORTED);
    *count = 0;
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        if (!gpu->gi[gi].live || gpu->gi[gi].profile != (uint32_t)profile) continue;
        out[(*count)++] = instance_handle(machine, GPU_INSTANCE, target.gpu, gi, 0);
    }
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(handle_t device, unsigned int id,
                                                 handle_t* instance) {
    ENTER();
    REQUIRE(instance != NULL);
    WITH_TARGET(device);
    ONLY(DEVICE);
    if (!gpu->mig_mode) return DONE(NOT_SUPPORTED);
    if (id >= MAX_GI || !gpu->gi[id].live) return DONE(NOT_FOUND);
    *instance = instance_handle(machine, GPU_INSTANCE, target.gpu, id, 0);
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(handle_t instance, gi_info* info) {
    ENTER();
    REQUIRE(info != NULL);
    WITH_TARGET(instance);
    ONLY(GPU_INSTANCE);
    const struct gpu_instance* gi = &gpu->gi[target.gi];
    info->device = device_handle(machine, target.gpu);
    info->id = target.gi;
    info->profileId = gpu->profiles[gi->profile].id;
    info->placement = (placement){gi->start, gi->size};
    return DONE(SUCCESS);
}

/* ---- compute instances */

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(handle_t instance,
                                                                 unsigned int profile,
                                                                 unsigned int engine_profile,
                                                                 ci_profile_info* info) {
    ENTER();
    REQUIRE(info != NULL && profile < CI_PROFILE_COUNT && engine_profile == 0);
    WITH_TARGET(instance);
    ONLY(GPU_INSTANCE);
    char name[MIB_NAME];
    bool exists = ci_profile_info_of(gpu, target.gi, profile, info, name, sizeof name);
    return DONE(exists ? SUCCESS : NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(handle_t instance,
                                                                  unsigned int profile,
                                                                  unsigned int engine_profile,
                                                                  ci_profile_info_v2* info) {
    ENTER();
    REQUIRE(info != NULL && profile < CI_PROFILE_COUNT && engine_profile == 0);
    bool is_second = info->version == VERSION_OF(ci_profile_info_v2, 2);
    if (!is_second && info->version != VERSION_OF(ci_profile_info_v3, 3))
        return ARGUMENT_VERSION_MISMATCH;
    WITH_TARGET(instance);
    ONLY(GPU_INSTANCE);
    ci_profile_info figures;
    if (!ci_profile_info_of(gpu, target.gi, profile, &figures, info->name, sizeof info->name))
        return DONE(NOT_SUPPORTED);
    memcpy(&info->id, &figures, sizeof figures);
    if (!is_second) ((ci_profile_info_v3*)info)->capabilities = 0;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(handle_t instance,
                                                                        unsigned int profile,
                                                                        placement* out,
                                                                        unsigned int* count) {
    ENTER();
    REQUIRE(count != NULL && profile < CI_PROFILE_COUNT);
    WITH_TARGET(instance);
    ONLY(GPU_INSTANCE);
    *count = ci_placements_of(gpu, target.gi, profile, false, out);
    return DONE(*count > 0 ? SUCCESS : NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(handle_t instance,
                                                                       unsigned int profile,
                                                                       unsigned int* count) {
    ENTER();
    REQUIRE(count != NULL && profile < CI_PROFILE_COUNT);
    WITH_TARGET(instance);
    ONLY(GPU_INSTANCE);
    *count = ci_placements_of(gpu, target.gi, profile, true, NULL);
    return DONE(SUCCESS);
}

static nvmlReturn_t create_ci(handle_t instance, unsigned int profile, const placement* at,
                              handle_t* compute) {
    REQUIRE(compute != NULL);
    CHANGE_TARGET(instance, GPU_INSTANCE);
    uint32_t ci;
    nvmlReturn_t code = ci_create(machine, target.gpu, target.gi, profile, at, &ci);
    if (code != SUCCESS) return change_abandon(code);
    *compute = instance_handle(machine, COMPUTE_INSTANCE, target.gpu, target.gi, ci);
    return change_commit();
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(handle_t instance, unsigned int profile,
                                                         handle_t* compute) {
    ENTER();
    return create_ci(instance, profile, NULL, compute);
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(handle_t instance,
                                                                      unsigned int profile,
                                                                      const placement* at,
                                                                      handle_t* compute) {
    ENTER();
    REQUIRE(at != NULL);
    return create_ci(instance, profile, at, compute);
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(handle_t compute) {
    ENTER();
    CHANGE_TARGET(compute, COMPUTE_INSTANCE);
    nvmlReturn_t code = ci_destroy(machine, target.gpu, target.gi, target.ci);
    return code == SUCCESS ? change_commit() : change_abandon(code);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(handle_t instance, unsigned int profile,
                                                       handle_t* out, unsigned int* count) {
    ENTER();
    REQUIRE(out != NULL && count != NULL);
    WITH_TARGET(instance);
    ONLY(GPU_INSTANCE);
    *count = 0;
    for (uint32_t ci = 0; ci < MAX_CI; ci++) {
        const struct compute_instance* compute = &gpu->gi[target.gi].ci[ci];
        if (!compute->live || compute->profile != profile) continue;
        out[(*count)++] = instance_handle(machine, COMPUTE_INSTANCE, target.gpu, target.gi, ci);
    }
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(handle_t instance, unsigned int id,
                                                          handle_t* compute) {
    ENTER();
    REQUIRE(compute != NULL);
    WITH_TARGET(instance);
    ONLY(GPU_INSTANCE);
    if (id >= MAX_CI || !gpu->gi[target.gi].ci[id].live) return DONE(NOT_FOUND);
    *compute = instance_handle(machine, COMPUTE_INSTANCE, target.gpu, target.gi, id);
    return DONE(SUCCESS);
}

/* `device` is the MIG device in the second version; the first gave the parent. */
static nvmlReturn_t ci_info_of(handle_t compute, ci_info* info, bool with_mig_device) {
    REQUIRE(info != NULL);
    WITH_TARGET(compute);
    ONLY(COMPUTE_INSTANCE);
    const struct compute_instance* ci = &gpu->gi[target.gi].ci[target.ci];
    info->device = with_mig_device
                       ? instance_handle(machine, MIG_DEVICE, target.gpu, target.gi, target.ci)
                       : device_handle(machine, target.gpu);
    info->gpuInstance = instance_handle(machine, GPU_INSTANCE, target.gpu, target.gi, 0);
    info->id = target.ci;
    info->profileId = ci->profile;
    info->placement = (placement){ci->start, ci->size};
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo(handle_t compute, ci_info* info) {
    ENTER();
    return ci_info_of(compute, info, false);
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(handle_t compute, ci_info* info) {
    ENTER();
    return ci_info_of(compute, info, true);
}
