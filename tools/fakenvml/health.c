/* Errors of the hardware: events, ECC, row remapping, recovery actions, reasons for slow clocks. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#define SUPPORTED_EVENTS                                                        \
    (EVENT_SINGLE_BIT_ECC | EVENT_DOUBLE_BIT_ECC | EVENT_XID | EVENT_MIG_CONFIG \
     | EVENT_RECOVERY_ACTION | 0x4 | 0x10)

enum { CORRECTED = 0, UNCORRECTED = 1 };
enum { VOLATILE = 0, AGGREGATE = 1 };

/* ---- events: a ring in the machine, a place in it per event set */

void event_add(struct machine* machine, uint32_t gpu, uint64_t type, uint64_t data, uint32_t gi,
               uint32_t ci) {
    struct event* event = &machine->events[machine->event_count % MAX_EVENTS];
    *event = (struct event){machine->event_count,          type, data, gpu,
                            machine->gpus[gpu].generation, gi,   ci};
    machine->event_count++;
}

#define SET_MAGIC 0x5e75e75eu

struct event_set {
    uint32_t magic;
    uint64_t next;
    uint64_t masks[MAX_GPUS];
    uint32_t losses[MAX_GPUS]; /* how often the GPU was lost when this set last reported it */
};

EXPORT nvmlReturn_t nvmlEventSetCreate(struct event_set** set) {
    ENTER();
    REQUIRE(set != NULL);
    struct event_set* created = calloc(1, sizeof *created);
    if (created == NULL) return NO_MEMORY;
    created->magic = SET_MAGIC;
    struct machine* machine = read_begin();
    created->next = machine->event_count;
    for (uint32_t gpu = 0; gpu < MAX_GPUS; gpu++) created->losses[gpu] = machine->gpus[gpu].losses;
    read_end();
    *set = created;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlEventSetFree(struct event_set* set) {
    ENTER();
    REQUIRE(set != NULL && set->magic == SET_MAGIC);
    set->magic = 0;
    free(set);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(handle_t device, unsigned long long* types) {
    ENTER();
    REQUIRE(types != NULL);
    WITH_TARGET(device);
    if (target.kind != DEVICE) return DONE(NOT_SUPPORTED);
    *types = SUPPORTED_EVENTS;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(handle_t device, unsigned long long types,
                                             struct event_set* set) {
    ENTER();
    REQUIRE(set != NULL && set->magic == SET_MAGIC);
    WITH_TARGET(device);
    if (target.kind != DEVICE) return DONE(NOT_SUPPORTED);
    if (types & ~SUPPORTED_EVENTS) return DONE(NOT_SUPPORTED);
    set->masks[target.gpu] |= types;
    return DONE(SUCCESS);
}

/* The next event the set asked for. A set that fell behind by more than the ring holds loses the
 * oldest. */
static bool next_event(struct machine* machine, struct event_set* set, event_data* data) {
    if (machine->event_count > set->next + MAX_EVENTS)
        set->next = machine->event_count - MAX_EVENTS;
    while (set->next < machine->event_count) {
        const struct event* event = &machine->events[set->next++ % MAX_EVENTS];
        if (!(set->masks[event->gpu] & event->type)) continue;
        data->device = device_handle(machine, event->gpu);
        data->eventType = event->type;
        data->eventData = event->data;
        data->gpuInstanceId = event->gi;
        data->computeInstanceId = event->ci;
        return true;
    }
    return false;
}

/* A watched GPU fell off the bus: reported once per set and loss, so that a waiting loop does not
 * spin. */
static bool has_lost(const struct machine* machine, struct event_set* set) {
    for (uint32_t gpu = 0; gpu < machine->gpu_count; gpu++) {
        if (!set->masks[gpu] || set->losses[gpu] == machine->gpus[gpu].losses) continue;
        set->losses[gpu] = machine->gpus[gpu].losses;
        return true;
    }
    return false;
}

static nvmlReturn_t wait_for_event(struct event_set* set, event_data* data, unsigned int timeout) {
    REQUIRE(set != NULL && set->magic == SET_MAGIC && data != NULL);
    int64_t deadline = steady_milliseconds() + timeout;
    while (true) {
        uint32_t wake = __atomic_load_n(&here->store->event_wake, __ATOMIC_SEQ_CST);
        struct machine* machine = read_begin();
        bool has_event = next_event(machine, set, data);
        bool is_lost = !has_event && has_lost(machine, set);
        read_end();
        if (has_event) return SUCCESS;
        if (is_lost) return GPU_IS_LOST;
        int64_t left = deadline - steady_milliseconds();
        if (left <= 0) return TIMEOUT;
        wait_for_change(&here->store->event_wake, wake, left);
    }
}

EXPORT nvmlReturn_t nvmlEventSetWait(struct event_set* set, event_data* data,
                                     unsigned int timeout) {
    ENTER();
    return wait_for_event(set, data, timeout);
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(struct event_set* set, event_data* data,
                                        unsigned int timeout) {
    ENTER();
    return wait_for_event(set, data, timeout);
}

/* ---- ECC */

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(handle_t device, unsigned int* current,
                                         unsigned int* pending) {
    ENTER();
    REQUIRE(current != NULL && pending != NULL);
    WITH_TARGET(device);
    *current = gpu->ecc_mode;
    *pending = gpu->ecc_pending_mode;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDefaultEccMode(handle_t device, unsigned int* mode) {
    ENTER();
    REQUIRE(mode != NULL);
    WITH_TARGET(device);
    *mode = 1;
    return DONE(SUCCESS);
}

static uint64_t ecc(const struct gpu* gpu, unsigned int error, unsigned int counter) {
    if (error == CORRECTED)
        return counter == VOLATILE ? gpu->ecc_corrected_volatile : gpu->ecc_corrected_aggregate;
    return counter == VOLATILE ? gpu->ecc_uncorrected_volatile : gpu->ecc_uncorrected_aggregate;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(handle_t device, unsigned int error,
                                                unsigned int counter, unsigned long long* count) {
    ENTER();
    REQUIRE(count != NULL && error <= UNCORRECTED && counter <= AGGREGATE);
    WITH_TARGET(device);
    if (!gpu->ecc_mode) return DONE(NOT_SUPPORTED);
    *count = ecc(gpu, error, counter);
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetDetailedEccErrors(handle_t device, unsigned int error,
                                                   unsigned int counter, ecc_counts* counts) {
    ENTER();
    REQUIRE(counts != NULL && error <= UNCORRECTED && counter <= AGGREGATE);
    WITH_TARGET(device);
    if (!gpu->ecc_mode) return DONE(NOT_SUPPORTED);
    *counts = (ecc_counts){0, 0, ecc(gpu, error, counter), 0};
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(handle_t device, unsigned int error,
                                                    unsigned int counter, unsigned int location,
                                                    unsigned long long* count) {
    ENTER();
    enum { DEVICE_MEMORY = 2 };
    REQUIRE(count != NULL && error <= UNCORRECTED && counter <= AGGREGATE);
    WITH_TARGET(device);
    if (!gpu->ecc_mode) return DONE(NOT_SUPPORTED);
    *count = location == DEVICE_MEMORY ? ecc(gpu, error, counter) : 0;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(handle_t device, sram_ecc_status* status) {
    ENTER();
    REQUIRE(status != NULL);
    if (status->version != VERSION_OF(sram_ecc_status, 1)) return ARGUMENT_VERSION_MISMATCH;
    WITH_TARGET(device);
    *status = (sram_ecc_status){.version = status->version};
    return DONE(SUCCESS);
}

/* ---- row remapping and page retirement: Ampere and newer remap, older boards retire pages */

enum { AMPERE = 7 };

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(handle_t device, unsigned int* corrected,
                                              unsigned int* uncorrected, unsigned int* is_pending,
                                              unsigned int* has_failed) {
    ENTER();
    REQUIRE(corrected != NULL && uncorrected != NULL && is_pending != NULL && has_failed != NULL);
    WITH_TARGET(device);
    if (gpu->architecture < AMPERE) return DONE(NOT_SUPPORTED);
    *corrected = gpu->remapped_correctable;
    *uncorrected = gpu->remapped_uncorrectable;
    *is_pending = gpu->remap_pending;
    *has_failed = gpu->remap_failure;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows_v2(handle_t device, remapped_rows* rows) {
    ENTER();
    REQUIRE(rows != NULL);
    WITH_TARGET(device);
    if (gpu->architecture < AMPERE) return DONE(NOT_SUPPORTED);
    *rows = (remapped_rows){gpu->remapped_correctable,   0,
                            gpu->remapped_uncorrectable, 0,
                            gpu->remap_pending,          gpu->remap_failure};
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(handle_t device, row_histogram* banks) {
    ENTER();
    REQUIRE(banks != NULL);
    WITH_TARGET(device);
    if (gpu->architecture < AMPERE) return DONE(NOT_SUPPORTED);
    enum { BANKS = 640 };
    uint32_t remapped = gpu->remapped_correctable + gpu->remapped_uncorrectable;
    uint32_t touched = remapped < BANKS ? remapped : BANKS;
    *banks = (row_histogram){BANKS - touched, touched, 0, 0, gpu->remap_failure ? 1 : 0};
    return DONE(SUCCESS);
}

static nvmlReturn_t retired(handle_t device, unsigned int cause, unsigned int* count,
                            unsigned long long* addresses, unsigned long long* times) {
    enum { SINGLE_BIT = 0, PAGE = 0x10000 };
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    if (gpu->architecture >= AMPERE) return DONE(NOT_SUPPORTED);
    uint32_t pages = cause == SINGLE_BIT ? gpu->retired_single_bit : gpu->retired_double_bit;
    uint32_t room = *count;
    *count = pages;
    if (pages == 0) return DONE(SUCCESS);
    if (room < pages || addresses == NULL) return DONE(INSUFFICIENT_SIZE);
    for (uint32_t page = 0; page < pages; page++) {
        addresses[page] = (unsigned long long)(page + 1) * PAGE;
        if (times != NULL) times[page] = 0;
    }
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(handle_t device, unsigned int cause,
                                              unsigned int* count, unsigned long long* addresses) {
    ENTER();
    return retired(device, cause, count, addresses, NULL);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(handle_t device, unsigned int cause,
                                                 unsigned int* count, unsigned long long* addresses,
                                                 unsigned long long* times) {
    ENTER();
    return retired(device, cause, count, addresses, times);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(handle_t device,
                                                           unsigned int* is_pending) {
    ENTER();
    REQUIRE(is_pending != NULL);
    WITH_TARGET(device);
    if (gpu->architecture >= AMPERE) return DONE(NOT_SUPPORTED);
    *is_pending = gpu->retired_pending;
    return DONE(SUCCESS);
}

/* ---- clocks event reasons */

#define REASONS_SUPPORTED 0x1FFull

#define REASONS_OF(function, expression)                                         \
    EXPORT nvmlReturn_t function(handle_t device, unsigned long long* reasons) { \
        ENTER();                                                                 \
        REQUIRE(reasons != NULL);                                                \
        WITH_TARGET(device);                                                     \
        *reasons = expression;                                                   \
        return DONE(SUCCESS);                                                    \
    }

REASONS_OF(nvmlDeviceGetCurrentClocksEventReasons, gpu->throttle_reasons)
REASONS_OF(nvmlDeviceGetCurrentClocksThrottleReasons, gpu->throttle_reasons)
REASONS_OF(nvmlDeviceGetSupportedClocksEventReasons, REASONS_SUPPORTED)
REASONS_OF(nvmlDeviceGetSupportedClocksThrottleReasons, REASONS_SUPPORTED)

/* ---- field values: the figures that have a number instead of a function */

struct field {
    uint32_t id;
    bool is_wide;
    size_t offset;
};

#define NARROW(number, member) {number, false, offsetof(struct gpu, member)}
#define WIDE(number, member) {number, true, offsetof(struct gpu, member)}

static const struct field fields[] = {
    NARROW(1, ecc_mode),
    NARROW(2, ecc_pending_mode),
    WIDE(3, ecc_corrected_volatile),
    WIDE(4, ecc_uncorrected_volatile),
    WIDE(5, ecc_corrected_aggregate),
    WIDE(6, ecc_uncorrected_aggregate),
    NARROW(29, retired_single_bit),
    NARROW(30, retired_double_bit),
    NARROW(31, retired_pending),
    NARROW(82, memory_temperature),
    WIDE(83, energy_millijoules),
    NARROW(90, nvlink_mbps),
    NARROW(91, nvlink_count),
    NARROW(142, remapped_correctable),
    NARROW(143, remapped_uncorrectable),
    NARROW(144, remap_pending),
    NARROW(145, remap_failure),
    NARROW(164, nvlink_mbps),
    NARROW(166, nvlink_version),
    NARROW(184, mig_without_reset),
    NARROW(185, power_usage_milliwatts),
    NARROW(186, power_usage_milliwatts),
    NARROW(187, power_minimum_milliwatts),
    NARROW(188, power_maximum_milliwatts),
    NARROW(189, power_default_milliwatts),
    NARROW(190, power_limit_milliwatts),
    NARROW(230, recovery_action),
};

static void field_out(const struct gpu* gpu, field_value* value) {
    enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
    value->nvmlReturn = NOT_SUPPORTED;
    value->timestamp = now_milliseconds() * 1000;
    value->latencyUsec = 0;
    for (size_t index = 0; index < sizeof fields / sizeof *fields; index++) {
        if (fields[index].id != value->fieldId) continue;
        const char* member = (const char*)gpu + fields[index].offset;
        value->valueType = fields[index].is_wide ? UNSIGNED_LONG_LONG : UNSIGNED_INT;
        value->value = fields[index].is_wide ? *(const uint64_t*)member : *(const uint32_t*)member;
        value->nvmlReturn = SUCCESS;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(handle_t device, int count, field_value* values) {
    ENTER();
    REQUIRE(values != NULL && count > 0);
    WITH_TARGET(device);
    for (int index = 0; index < count; index++) field_out(gpu, &values[index]);
    return DONE(SUCCESS);
}
