/* How GPUs are connected: PCIe, NUMA, NVLink, and the NVLink fabric of a rack. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

enum { INTERNAL = 0, SINGLE = 10, MULTIPLE = 20, HOSTBRIDGE = 30, NODE = 40, SYSTEM = 50 };
enum { TO_GPU = 0, TO_SWITCH = 2 };
enum { HOPPER = 9 };
#define MAX_LINKS 18
#define SWITCH (-1)

/* ---- PCIe and NUMA */

static unsigned int ancestor(const struct gpu* left, const struct gpu* right) {
    if (left == right) return INTERNAL;
    if (left->numa_node != right->numa_node) return SYSTEM;
    if (left->pcie_root != right->pcie_root) return NODE;
    if (left->pcie_switch != right->pcie_switch) return HOSTBRIDGE;
    return SINGLE;
}

static nvmlReturn_t both(struct machine* machine, handle_t first, handle_t second,
                         const struct gpu** left, const struct gpu** right) {
    struct target one, two;
    nvmlReturn_t code = locate(machine, first, &one);
    if (code == SUCCESS) code = locate(machine, second, &two);
    if (code != SUCCESS) return code;
    *left = &machine->gpus[one.gpu];
    *right = &machine->gpus[two.gpu];
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(handle_t first, handle_t second,
                                                        unsigned int* level) {
    ENTER();
    REQUIRE(level != NULL);
    struct machine* machine = read_begin();
    const struct gpu *left, *right;
    nvmlReturn_t code = both(machine, first, second, &left, &right);
    if (code == SUCCESS) *level = ancestor(left, right);
    return DONE(code);
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(handle_t device, unsigned int level,
                                                     unsigned int* count, handle_t* out) {
    ENTER();
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    uint32_t near = 0;
    for (uint32_t index = 0; index < machine->gpu_count; index++) {
        const struct gpu* peer = &machine->gpus[index];
        if (!peer->present || peer->lost || peer == gpu || ancestor(gpu, peer) != level) continue;
        if (out != NULL && near < *count) out[near] = device_handle(machine, index);
        near++;
    }
    *count = near;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(handle_t first, handle_t second, int* is_same) {
    ENTER();
    REQUIRE(is_same != NULL);
    struct machine* machine = read_begin();
    const struct gpu *left, *right;
    nvmlReturn_t code = both(machine, first, second, &left, &right);
    if (code == SUCCESS) *is_same = left == right;
    return DONE(code);
}

/* Where GPU memory itself is a NUMA node, its number; elsewhere programs read sysfs. */
EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(handle_t device, unsigned int* node) {
    ENTER();
    REQUIRE(node != NULL);
    WITH_TARGET(device);
    if (gpu->memory_numa_node < 0) return DONE(NOT_SUPPORTED);
    *node = (unsigned int)gpu->memory_numa_node;
    return DONE(SUCCESS);
}

#define BITS (8 * sizeof(unsigned long))

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(handle_t device, unsigned int size,
                                                unsigned long* nodes, unsigned int scope) {
    ENTER();
    REQUIRE(nodes != NULL && size > 0 && scope <= 1);
    WITH_TARGET(device);
    if (gpu->numa_node < 0) return DONE(NOT_SUPPORTED);
    memset(nodes, 0, size * sizeof *nodes);
    uint32_t node = (uint32_t)gpu->numa_node;
    if (node / BITS >= size) return DONE(INSUFFICIENT_SIZE);
    nodes[node / BITS] |= 1ul << (node % BITS);
    return DONE(SUCCESS);
}

static nvmlReturn_t cpus(handle_t device, unsigned int size, unsigned long* set) {
    REQUIRE(set != NULL && size > 0);
    WITH_TARGET(device);
    memset(set, 0, size * sizeof *set);
    for (uint32_t cpu = gpu->first_cpu; cpu < gpu->first_cpu + gpu->cpu_count && cpu / BITS < size;
         cpu++) {
        set[cpu / BITS] |= 1ul << (cpu % BITS);
    }
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(handle_t device, unsigned int size,
                                             unsigned long* set) {
    ENTER();
    return cpus(device, size, set);
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(handle_t device, unsigned int size,
                                                        unsigned long* set, unsigned int scope) {
    ENTER();
    REQUIRE(scope <= 1);
    return cpus(device, size, set);
}

/* ---- NVLink */

static bool is_active(const struct gpu* gpu, unsigned int link) {
    return !(gpu->nvlink_down >> link & 1);
}

/* The GPU at the other end of a link, or SWITCH. `nvlink_peers` lists one per link, with commas
 * between. */
static int peer_of(const struct gpu* gpu, unsigned int link) {
    const char* at = gpu->nvlink_peers;
    if (*at == 0) return SWITCH;
    while (link-- > 0 && at != NULL) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
    return at != NULL ? atoi(at) : SWITCH;
}

/* Links between two GPUs; through switches every GPU reaches every other one with all its links. */
static uint32_t links_between(const struct machine* machine, const struct gpu* left,
                              const struct gpu* right) {
    uint32_t count = 0;
    for (unsigned int link = 0; link < left->nvlink_count; link++) {
        int peer = peer_of(left, link);
        bool leads_there = peer == SWITCH ? right->nvlink_count > 0 : &machine->gpus[peer] == right;
        count += is_active(left, link) && leads_there;
    }
    return count;
}

#define WITH_LINK(device, link)                             \
    REQUIRE((link) < MAX_LINKS);                            \
    WITH_TARGET(device);                                    \
    if (gpu->nvlink_count == 0) return DONE(NOT_SUPPORTED); \
    if ((link) >= gpu->nvlink_count) return DONE(INVALID_ARGUMENT)

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(handle_t device, unsigned int link,
                                             unsigned int* state) {
    ENTER();
    REQUIRE(state != NULL);
    WITH_LINK(device, link);
    *state = is_active(gpu, link);
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(handle_t device, unsigned int link,
                                               unsigned int* version) {
    ENTER();
    REQUIRE(version != NULL);
    WITH_LINK(device, link);
    *version = gpu->nvlink_version;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(handle_t device, unsigned int link,
                                                  unsigned int capability, unsigned int* value) {
    ENTER();
    REQUIRE(value != NULL && capability <= 5);
    WITH_LINK(device, link);
    *value = 1;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(handle_t device, unsigned int link,
                                                    unsigned int counter,
                                                    unsigned long long* value) {
    ENTER();
    REQUIRE(value != NULL && counter <= 4);
    WITH_LINK(device, link);
    *value = gpu->nvlink_errors;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(handle_t device, unsigned int link,
                                                        unsigned int* type) {
    ENTER();
    REQUIRE(type != NULL);
    WITH_LINK(device, link);
    *type = peer_of(gpu, link) == SWITCH ? TO_SWITCH : TO_GPU;
    return DONE(SUCCESS);
}

/* A switch is a PCI device too: six of them, on a bus behind all GPUs. */
static nvmlReturn_t remote_pci(handle_t device, unsigned int link, pci_info* info) {
    enum { SWITCHES = 6, FIRST_SWITCH_BUS = 0xF4, SWITCH_DEVICE_ID = 0x22a310de };
    REQUIRE(info != NULL);
    WITH_LINK(device, link);
    if (!is_active(gpu, link)) return DONE(NOT_SUPPORTED);
    int peer = peer_of(gpu, link);
    memset(info, 0, sizeof *info);
    if (peer == SWITCH) {
        info->bus = FIRST_SWITCH_BUS + link % SWITCHES;
        info->pciDeviceId = SWITCH_DEVICE_ID;
    } else {
        const struct gpu* other = &machine->gpus[peer];
        info->domain = other->pci_domain;
        info->bus = other->pci_bus;
        info->device = other->pci_device;
        info->pciDeviceId = other->pci_device_id;
    }
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", info->domain & 0xFFFF,
             info->bus & 0xFF, info->device & 0xFF);
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", info->domain, info->bus & 0xFF,
             info->device & 0xFF);
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(handle_t device, unsigned int link,
                                                     pci_info* info) {
    ENTER();
    return remote_pci(device, link, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(handle_t device, unsigned int link,
                                                        pci_info* info) {
    ENTER();
    return remote_pci(device, link, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(handle_t first, handle_t second, unsigned int index,
                                           unsigned int* status) {
    ENTER();
    enum { OVER_NVLINK = 2, ATOMICS = 3, OK = 0, P2P_NOT_SUPPORTED = 5 };
    REQUIRE(status != NULL && index < 5);
    struct machine* machine = read_begin();
    const struct gpu *left, *right;
    nvmlReturn_t code = both(machine, first, second, &left, &right);
    if (code != SUCCESS) return DONE(code);
    if (left == right) return DONE(INVALID_ARGUMENT);
    bool has_links = links_between(machine, left, right) > 0;
    bool needs_links = index == OVER_NVLINK || index == ATOMICS;
    bool is_partitioned = left->mig_mode || right->mig_mode; /* MIG instances have no peers */
    *status = (needs_links && !has_links) || is_partitioned ? P2P_NOT_SUPPORTED : OK;
    return DONE(SUCCESS);
}

/* ---- fabric */

static void uuid_bytes(const char* text, uint8_t* bytes) {
    memset(bytes, 0, 16);
    for (int count = 0; *text != 0 && count < 16;) {
        unsigned int value;
        if (*text == '-') {
            text++;
        } else if (sscanf(text, "%2x", &value) == 1) {
            bytes[count++] = (uint8_t)value;
            text += 2;
        } else {
            return;
        }
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(handle_t device, fabric_info* info) {
    ENTER();
    REQUIRE(info != NULL);
    WITH_TARGET(device);
    if (gpu->architecture < HOPPER) return DONE(NOT_SUPPORTED);
    uuid_bytes(gpu->fabric_cluster, info->clusterUuid);
    info->status = gpu->fabric_status;
    info->cliqueId = gpu->fabric_clique;
    info->state = gpu->fabric_state;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(handle_t device, fabric_info_v2* info) {
    ENTER();
    REQUIRE(info != NULL);
    bool is_third = info->version == VERSION_OF(fabric_info_v3, 3);
    if (!is_third && info->version != VERSION_OF(fabric_info_v2, 2))
        return ARGUMENT_VERSION_MISMATCH;
    WITH_TARGET(device);
    if (gpu->architecture < HOPPER) return DONE(NOT_SUPPORTED);
    uuid_bytes(gpu->fabric_cluster, info->clusterUuid);
    info->status = gpu->fabric_status;
    info->cliqueId = gpu->fabric_clique;
    info->state = gpu->fabric_state;
    info->healthMask = gpu->fabric_health_mask;
    if (is_third) ((fabric_info_v3*)info)->healthSummary = (uint8_t)gpu->fabric_health_summary;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPlatformInfo(handle_t device, platform_info* info) {
    ENTER();
    REQUIRE(info != NULL);
    bool is_first = info->version == VERSION_OF(platform_info, 1);
    if (!is_first && info->version != VERSION_OF(platform_info, 2))
        return ARGUMENT_VERSION_MISMATCH;
    WITH_TARGET(device);
    if (gpu->chassis_serial[0] == 0) return DONE(NOT_SUPPORTED);
    uuid_bytes(gpu->fabric_cluster, info->ibGuid);
    memcpy(info->chassisSerialNumber, gpu->chassis_serial, sizeof info->chassisSerialNumber);
    info->slotNumber = (uint8_t)gpu->slot_number;
    info->trayIndex = (uint8_t)gpu->tray_index;
    info->hostId = (uint8_t)gpu->host_id;
    info->peerType = (uint8_t)gpu->peer_type;
    info->moduleId = (uint8_t)gpu->module_id;
    return DONE(SUCCESS);
}
