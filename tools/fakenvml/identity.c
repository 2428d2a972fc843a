/* Which GPUs there are, by what they can be found, and what they are. Never changes anything. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define GIB (1024ull * 1024 * 1024)
#define MIB (1024ull * 1024)

static nvmlReturn_t count_gpus(unsigned int* count) {
    REQUIRE(count != NULL);
    struct machine* machine = read_begin();
    *count = 0;
    for (uint32_t index = 0; index < machine->gpu_count; index++)
        *count += machine->gpus[index].present;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int* count) {
    ENTER();
    return count_gpus(count);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
    ENTER();
    return count_gpus(count);
}

static nvmlReturn_t found(const struct machine* machine, uint32_t gpu, handle_t* device) {
    if (machine->gpus[gpu].lost) return GPU_IS_LOST;
    *device = device_handle(machine, gpu);
    return SUCCESS;
}

static nvmlReturn_t by_index(unsigned int index, handle_t* device) {
    REQUIRE(device != NULL);
    struct machine* machine = read_begin();
    for (uint32_t gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!machine->gpus[gpu].present) continue;
        if (index-- == 0) return DONE(found(machine, gpu, device));
    }
    return DONE(INVALID_ARGUMENT);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, handle_t* device) {
    ENTER();
    return by_index(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle_t* device) {
    ENTER();
    return by_index(index, device);
}

static nvmlReturn_t mig_by_uuid(const struct machine* machine, uint32_t gpu, const char* uuid,
                                handle_t* device) {
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        const struct gpu_instance* instance = &machine->gpus[gpu].gi[gi];
        for (uint32_t ci = 0; instance->live && ci < MAX_CI; ci++) {
            if (!instance->ci[ci].live || strcasecmp(instance->ci[ci].uuid, uuid) != 0) continue;
            *device = instance_handle(machine, MIG_DEVICE, gpu, gi, ci);
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

static nvmlReturn_t by_uuid(const char* uuid, handle_t* device) {
    REQUIRE(uuid != NULL && device != NULL);
    struct machine* machine = read_begin();
    for (uint32_t gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!machine->gpus[gpu].present) continue;
        if (strcasecmp(machine->gpus[gpu].uuid, uuid) == 0)
            return DONE(found(machine, gpu, device));
        if (mig_by_uuid(machine, gpu, uuid, device) == SUCCESS) return DONE(SUCCESS);
    }
    return DONE(NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, handle_t* device) {
    ENTER();
    return by_uuid(uuid, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const uuid_request* request, handle_t* device) {
    ENTER();
    REQUIRE(request != NULL);
    enum { ASCII = 1 };
    if (request->version != VERSION_OF(uuid_request, 1)) return ARGUMENT_VERSION_MISMATCH;
    if (request->type != ASCII) return NOT_SUPPORTED;
    char text[sizeof request->value + 1];
    memcpy(text, request->value, sizeof request->value);
    text[sizeof request->value] = 0;
    return by_uuid(text, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, handle_t* device) {
    ENTER();
    REQUIRE(serial != NULL && device != NULL);
    struct machine* machine = read_begin();
    for (uint32_t gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!machine->gpus[gpu].present || strcmp(machine->gpus[gpu].serial, serial) != 0) continue;
        return DONE(found(machine, gpu, device));
    }
    return DONE(NOT_FOUND);
}

static nvmlReturn_t by_pci(const char* bus_id, handle_t* device) {
    REQUIRE(bus_id != NULL && device != NULL);
    unsigned int domain = 0, bus, slot;
    bool is_long = sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3;
    if (!is_long) {
        domain = 0;
        REQUIRE(sscanf(bus_id, "%x:%x", &bus, &slot) == 2);
    }
    struct machine* machine = read_begin();
    for (uint32_t index = 0; index < machine->gpu_count; index++) {
        const struct gpu* gpu = &machine->gpus[index];
        if (!gpu->present || gpu->pci_domain != domain || gpu->pci_bus != bus
            || gpu->pci_device != slot)
            continue;
        return DONE(found(machine, index, device));
    }
    return DONE(NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* bus_id, handle_t* device) {
    ENTER();
    return by_pci(bus_id, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, handle_t* device) {
    ENTER();
    return by_pci(bus_id, device);
}

static nvmlReturn_t text_out(const char* text, char* to, unsigned int length) {
    if (to == NULL) return INVALID_ARGUMENT;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(handle_t device, char* uuid, unsigned int length) {
    ENTER();
    WITH_TARGET(device);
    if (target.kind != MIG_DEVICE) return DONE(text_out(gpu->uuid, uuid, length));
    return DONE(text_out(gpu->gi[target.gi].ci[target.ci].uuid, uuid, length));
}

/* "NVIDIA H100 80GB HBM3 MIG 1g.10gb": a compute instance smaller than its GPU instance shows both
 * sizes. */
EXPORT nvmlReturn_t nvmlDeviceGetName(handle_t device, char* name, unsigned int length) {
    ENTER();
    WITH_TARGET(device);
    if (target.kind != MIG_DEVICE) return DONE(text_out(gpu->product, name, length));
    const struct gpu_instance* gi = &gpu->gi[target.gi];
    const struct profile* profile = &gpu->profiles[gi->profile];
    uint32_t slices = gi->ci[target.ci].size;
    char text[160];
    if (slices == profile->compute_slices) {
        snprintf(text, sizeof text, "%s MIG %s", gpu->product, profile->name);
    } else {
        snprintf(text, sizeof text, "%s MIG %uc.%s", gpu->product, slices, profile->name);
    }
    return DONE(text_out(text, name, length));
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(handle_t device, unsigned int* index) {
    ENTER();
    REQUIRE(index != NULL);
    WITH_TARGET(device);
    *index = 0;
    for (uint32_t before = 0; before < target.gpu; before++)
        *index += machine->gpus[before].present;
    return DONE(SUCCESS);
}

#define WHOLE_GPU() \
    if (target.kind != DEVICE) return DONE(INVALID_ARGUMENT)
#define TEXT_OF(function, member)                                                    \
    EXPORT nvmlReturn_t function(handle_t device, char* text, unsigned int length) { \
        ENTER();                                                                     \
        WITH_TARGET(device);                                                         \
        WHOLE_GPU();                                                                 \
        return DONE(text_out(gpu->member, text, length));                            \
    }
#define NUMBER_OF(function, member)                                       \
    EXPORT nvmlReturn_t function(handle_t device, unsigned int* number) { \
        ENTER();                                                          \
        REQUIRE(number != NULL);                                          \
        WITH_TARGET(device);                                              \
        *number = gpu->member;                                            \
        return DONE(SUCCESS);                                             \
    }

TEXT_OF(nvmlDeviceGetSerial, serial)
TEXT_OF(nvmlDeviceGetVbiosVersion, vbios)
TEXT_OF(nvmlDeviceGetBoardPartNumber, part_number)
TEXT_OF(nvmlDeviceGetInforomImageVersion, part_number)
NUMBER_OF(nvmlDeviceGetMinorNumber, minor)
NUMBER_OF(nvmlDeviceGetBrand, brand)
NUMBER_OF(nvmlDeviceGetArchitecture, architecture)
NUMBER_OF(nvmlDeviceGetModuleId, module_id)
NUMBER_OF(nvmlDeviceGetBoardId, pci_bus)
NUMBER_OF(nvmlDeviceGetNumGpuCores, cores)
NUMBER_OF(nvmlDeviceGetMemoryBusWidth, memory_bus_width)
NUMBER_OF(nvmlDeviceGetVirtualizationMode, virtualization_mode)
NUMBER_OF(nvmlDeviceGetComputeMode, compute_mode)
NUMBER_OF(nvmlDeviceGetPersistenceMode, persistence_mode)
NUMBER_OF(nvmlDeviceGetAccountingMode, accounting_mode)
NUMBER_OF(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
NUMBER_OF(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation)
NUMBER_OF(nvmlDeviceGetGpuMaxPcieLinkGeneration, pcie_generation)
NUMBER_OF(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
NUMBER_OF(nvmlDeviceGetMaxPcieLinkWidth, pcie_width)

#define CONSTANT(function, constant)                                      \
    EXPORT nvmlReturn_t function(handle_t device, unsigned int* number) { \
        ENTER();                                                          \
        REQUIRE(number != NULL);                                          \
        WITH_TARGET(device);                                              \
        *number = constant;                                               \
        return DONE(SUCCESS);                                             \
    }

CONSTANT(nvmlDeviceGetDisplayMode, 0)
CONSTANT(nvmlDeviceGetDisplayActive, 0)
CONSTANT(nvmlDeviceGetMultiGpuBoard, 0)

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(handle_t device, int* major, int* minor) {
    ENTER();
    REQUIRE(major != NULL && minor != NULL);
    WITH_TARGET(device);
    *major = (int)gpu->compute_major;
    *minor = (int)gpu->compute_minor;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(handle_t device, addressing_mode_info* info) {
    ENTER();
    REQUIRE(info != NULL);
    if (info->version != VERSION_OF(addressing_mode_info, 1)) return ARGUMENT_VERSION_MISMATCH;
    WITH_TARGET(device);
    info->value = gpu->addressing_mode;
    return DONE(SUCCESS);
}

/* ---- PCI */

static void bus_id(const struct gpu* gpu, char* text, size_t size, int digits) {
    snprintf(text, size, "%0*X:%02X:%02X.0", digits, gpu->pci_domain & 0xFFFFFF,
             gpu->pci_bus & 0xFF, gpu->pci_device & 0xFF);
}

static nvmlReturn_t pci(handle_t device, pci_info* info) {
    REQUIRE(info != NULL);
    WITH_TARGET(device);
    memset(info, 0, sizeof *info);
    info->domain = gpu->pci_domain;
    info->bus = gpu->pci_bus;
    info->device = gpu->pci_device;
    info->pciDeviceId = gpu->pci_device_id;
    info->pciSubSystemId = gpu->pci_subsystem_id;
    bus_id(gpu, info->busIdLegacy, sizeof info->busIdLegacy, 4);
    bus_id(gpu, info->busId, sizeof info->busId, 8);
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(handle_t device, pci_info* info) {
    ENTER();
    return pci(device, info);
}

static nvmlReturn_t pci_v2(handle_t device, pci_info_v2* info) {
    pci_info newer;
    REQUIRE(info != NULL);
    nvmlReturn_t code = pci(device, &newer);
    if (code != SUCCESS) return code;
    memset(info, 0, sizeof *info);
    memcpy(info->busId, newer.busIdLegacy, sizeof info->busId);
    info->domain = newer.domain;
    info->bus = newer.bus;
    info->device = newer.device;
    info->pciDeviceId = newer.pciDeviceId;
    info->pciSubSystemId = newer.pciSubSystemId;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(handle_t device, pci_info_v2* info) {
    ENTER();
    return pci_v2(device, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(handle_t device, pci_info_v2* info) {
    ENTER();
    return pci_v2(device, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(handle_t device, pci_info_ext* info) {
    ENTER();
    REQUIRE(info != NULL);
    if (info->version != VERSION_OF(pci_info_ext, 1)) return ARGUMENT_VERSION_MISMATCH;
    enum { DISPLAY_CONTROLLER = 3, THREE_D = 2 };
    WITH_TARGET(device);
    info->domain = gpu->pci_domain;
    info->bus = gpu->pci_bus;
    info->device = gpu->pci_device;
    info->pciDeviceId = gpu->pci_device_id;
    info->pciSubSystemId = gpu->pci_subsystem_id;
    info->baseClass = DISPLAY_CONTROLLER;
    info->subClass = THREE_D;
    bus_id(gpu, info->busId, sizeof info->busId, 8);
    return DONE(SUCCESS);
}

/* ---- memory */

static uint64_t used_bytes(const struct gpu* gpu, const struct target* target) {
    uint64_t used = target->kind == DEVICE ? gpu->memory_used_bytes : 0;
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        const struct process* process = &gpu->processes[index];
        if (target->kind == DEVICE || process->gi == target->gi) used += process->memory_bytes;
    }
    return used;
}

static void memory_of(const struct gpu* gpu, const struct target* target, memory_v2* info) {
    uint64_t total = gpu->memory_bytes;
    info->reserved = gpu->memory_reserved_bytes;
    if (target->kind == MIG_DEVICE) {
        total = gpu->profiles[gpu->gi[target->gi].profile].memory_mib * MIB;
        info->reserved = 0;
    }
    uint64_t used = used_bytes(gpu, target);
    uint64_t room = total - info->reserved;
    info->total = total;
    info->used = used < room ? used : room;
    info->free = room - info->used;
}

/* The first version counts what the driver reserves as used. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(handle_t device, memory* info) {
    ENTER();
    REQUIRE(info != NULL);
    WITH_TARGET(device);
    memory_v2 newer;
    memory_of(gpu, &target, &newer);
    info->total = newer.total;
    info->free = newer.free;
    info->used = newer.used + newer.reserved;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(handle_t device, memory_v2* info) {
    ENTER();
    REQUIRE(info != NULL);
    if (info->version != VERSION_OF(memory_v2, 2)) return ARGUMENT_VERSION_MISMATCH;
    WITH_TARGET(device);
    memory_of(gpu, &target, info);
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(handle_t device, bar1_memory* info) {
    ENTER();
    REQUIRE(info != NULL);
    WITH_TARGET(device);
    info->bar1Total = gpu->bar1_bytes;
    info->bar1Used = 0;
    info->bar1Free = gpu->bar1_bytes;
    return DONE(SUCCESS);
}
