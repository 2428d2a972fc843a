/* What runs on a GPU and how much it uses: processes, utilisation, power, temperature, clocks. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLING_PERIOD_US 167000

/* ---- figures of the whole GPU */

#define NUMBER_OF(function, expression)                                   \
    EXPORT nvmlReturn_t function(handle_t device, unsigned int* number) { \
        ENTER();                                                          \
        REQUIRE(number != NULL);                                          \
        WITH_TARGET(device);                                              \
        *number = expression;                                             \
        return DONE(SUCCESS);                                             \
    }

NUMBER_OF(nvmlDeviceGetPowerUsage, gpu->power_usage_milliwatts)
NUMBER_OF(nvmlDeviceGetPowerManagementLimit, gpu->power_limit_milliwatts)
NUMBER_OF(nvmlDeviceGetEnforcedPowerLimit, gpu->power_limit_milliwatts)
NUMBER_OF(nvmlDeviceGetPowerManagementDefaultLimit, gpu->power_default_milliwatts)
NUMBER_OF(nvmlDeviceGetPowerManagementMode, 1)
NUMBER_OF(nvmlDeviceGetPerformanceState, gpu->performance_state)
NUMBER_OF(nvmlDeviceGetPowerState, gpu->performance_state)

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(handle_t device,
                                                                 unsigned int* least,
                                                                 unsigned int* most) {
    ENTER();
    REQUIRE(least != NULL && most != NULL);
    WITH_TARGET(device);
    *least = gpu->power_minimum_milliwatts;
    *most = gpu->power_maximum_milliwatts;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(handle_t device,
                                                        unsigned long long* energy) {
    ENTER();
    REQUIRE(energy != NULL);
    WITH_TARGET(device);
    *energy = gpu->energy_millijoules;
    /* With a time set, the counter runs from there at the power of now. */
    uint64_t now = (uint64_t)now_milliseconds();
    if (gpu->energy_since_milliseconds != 0 && now > gpu->energy_since_milliseconds) {
        uint64_t elapsed = now - gpu->energy_since_milliseconds;
        *energy += gpu->power_usage_milliwatts * elapsed / 1000;
    }
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(handle_t device, unsigned int sensor,
                                             unsigned int* degrees) {
    ENTER();
    REQUIRE(degrees != NULL && sensor == 0);
    WITH_TARGET(device);
    *degrees = gpu->temperature;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(handle_t device, temperature_v1* info) {
    ENTER();
    REQUIRE(info != NULL && info->sensorType == 0);
    if (info->version != VERSION_OF(temperature_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    WITH_TARGET(device);
    info->temperature = (int32_t)gpu->temperature;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(handle_t device, unsigned int kind,
                                                      unsigned int* degrees) {
    ENTER();
    static const unsigned int thresholds[] = {92, 89, 95, 87}; /* shutdown, slowdown, memory, GPU */
    REQUIRE(degrees != NULL && kind < sizeof thresholds / sizeof *thresholds);
    WITH_TARGET(device);
    *degrees = thresholds[kind];
    return DONE(SUCCESS);
}

enum { GRAPHICS_CLOCK = 0, SM_CLOCK = 1, MEMORY_CLOCK = 2, VIDEO_CLOCK = 3 };

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(handle_t device, unsigned int kind, unsigned int* mhz) {
    ENTER();
    REQUIRE(mhz != NULL && kind <= VIDEO_CLOCK);
    WITH_TARGET(device);
    *mhz = kind == MEMORY_CLOCK ? gpu->memory_clock_mhz : gpu->sm_clock_mhz;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(handle_t device, unsigned int kind,
                                              unsigned int* mhz) {
    ENTER();
    REQUIRE(mhz != NULL && kind <= VIDEO_CLOCK);
    WITH_TARGET(device);
    *mhz = kind == MEMORY_CLOCK ? gpu->maximum_memory_clock_mhz : gpu->maximum_sm_clock_mhz;
    return DONE(SUCCESS);
}

/* Not offered on MIG devices, nor on a GPU in MIG mode: the figure would mix the tenants. */
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(handle_t device, utilization* rates) {
    ENTER();
    REQUIRE(rates != NULL);
    WITH_TARGET(device);
    if (target.kind != DEVICE || gpu->mig_mode) return DONE(NOT_SUPPORTED);
    rates->gpu = gpu->gpu_utilisation;
    rates->memory = gpu->memory_utilisation;
    return DONE(SUCCESS);
}

#define ENGINE_UTILISATION(function, expression)                                \
    EXPORT nvmlReturn_t function(handle_t device, unsigned int* percent,        \
                                 unsigned int* period_us) {                     \
        ENTER();                                                                \
        REQUIRE(percent != NULL && period_us != NULL);                          \
        WITH_TARGET(device);                                                    \
        if (target.kind != DEVICE || gpu->mig_mode) return DONE(NOT_SUPPORTED); \
        *percent = expression;                                                  \
        *period_us = SAMPLING_PERIOD_US;                                        \
        return DONE(SUCCESS);                                                   \
    }

ENGINE_UTILISATION(nvmlDeviceGetEncoderUtilization, gpu->encoder_utilisation)
ENGINE_UTILISATION(nvmlDeviceGetDecoderUtilization, gpu->decoder_utilisation)
ENGINE_UTILISATION(nvmlDeviceGetJpgUtilization, 0)
ENGINE_UTILISATION(nvmlDeviceGetOfaUtilization, 0)

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(handle_t device, unsigned int counter,
                                                unsigned int* kib) {
    ENTER();
    REQUIRE(kib != NULL && counter <= 1);
    WITH_TARGET(device);
    *kib = counter == 0 ? gpu->pcie_transmit_kib : gpu->pcie_receive_kib;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieReplayCounter(handle_t device, unsigned int* count) {
    ENTER();
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    *count = 0;
    return DONE(SUCCESS);
}

/* ---- settings */

static nvmlReturn_t set_number(handle_t device, size_t offset, uint32_t number, const char* event) {
    struct machine* machine = change_begin();
    struct target target;
    nvmlReturn_t code = locate(machine, device, &target);
    if (code == SUCCESS && target.kind != DEVICE) code = NOT_SUPPORTED;
    if (code != SUCCESS) return change_abandon(code);
    *(uint32_t*)((char*)&machine->gpus[target.gpu] + offset) = number;
    record((int)target.gpu, event, "\"value\":%u", number);
    return change_commit();
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(handle_t device, unsigned int mode) {
    ENTER();
    REQUIRE(mode <= 3);
    return set_number(device, offsetof(struct gpu, compute_mode), mode, "compute-mode");
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(handle_t device, unsigned int mode) {
    ENTER();
    REQUIRE(mode <= 1);
    return set_number(device, offsetof(struct gpu, persistence_mode), mode, "persistence-mode");
}

EXPORT nvmlReturn_t nvmlDeviceSetAccountingMode(handle_t device, unsigned int mode) {
    ENTER();
    REQUIRE(mode <= 1);
    return set_number(device, offsetof(struct gpu, accounting_mode), mode, "accounting-mode");
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(handle_t device, unsigned int milliwatts) {
    ENTER();
    struct machine* machine = read_begin();
    struct target target;
    nvmlReturn_t code = locate(machine, device, &target);
    const struct gpu* gpu = code == SUCCESS ? &machine->gpus[target.gpu] : NULL;
    bool is_allowed = gpu != NULL && milliwatts >= gpu->power_minimum_milliwatts
                      && milliwatts <= gpu->power_maximum_milliwatts;
    read_end();
    if (code != SUCCESS) return code;
    if (!is_allowed) return INVALID_ARGUMENT;
    return set_number(device, offsetof(struct gpu, power_limit_milliwatts), milliwatts,
                      "power-limit");
}

/* ---- processes */

static bool is_seen(const struct process* process, const struct target* target,
                    enum process_kind kind) {
    bool is_on_device =
        target->kind == DEVICE || (process->gi == target->gi && process->ci == target->ci);
    return process->kind == kind && is_on_device;
}

static void process_out(const struct process* process, process_info* info) {
    *info = (process_info){process->pid, process->memory_bytes, process->gi, process->ci};
}

/* `size` is that of one entry; the first version has the first two members only. */
static nvmlReturn_t processes(handle_t device, enum process_kind kind, unsigned int* count,
                              char* out, size_t size) {
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    uint32_t running = 0, room = *count;
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        if (!is_seen(&gpu->processes[index], &target, kind)) continue;
        process_info info;
        process_out(&gpu->processes[index], &info);
        if (out != NULL && running < room) memcpy(out + running * size, &info, size);
        running++;
    }
    *count = running;
    return DONE(running > room ? INSUFFICIENT_SIZE : SUCCESS);
}

#define FIRST_VERSION_SIZE offsetof(process_info, gpuInstanceId)
#define PROCESSES_OF(name, kind)                                                     \
    EXPORT nvmlReturn_t name(handle_t device, unsigned int* count, char* out) {      \
        ENTER();                                                                     \
        return processes(device, kind, count, out, FIRST_VERSION_SIZE);              \
    }                                                                                \
    EXPORT nvmlReturn_t name##_v2(handle_t device, unsigned int* count, char* out) { \
        ENTER();                                                                     \
        return processes(device, kind, count, out, sizeof(process_info));            \
    }                                                                                \
    EXPORT nvmlReturn_t name##_v3(handle_t device, unsigned int* count, char* out) { \
        ENTER();                                                                     \
        return processes(device, kind, count, out, sizeof(process_info));            \
    }

PROCESSES_OF(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
PROCESSES_OF(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
PROCESSES_OF(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(handle_t device, process_sample* samples,
                                                    unsigned int* count, unsigned long long since) {
    ENTER();
    REQUIRE(count != NULL);
    (void)since;
    WITH_TARGET(device);
    if (target.kind != DEVICE || gpu->mig_mode) return DONE(NOT_SUPPORTED);
    uint32_t room = *count;
    *count = gpu->process_count;
    if (gpu->process_count == 0) return DONE(NOT_FOUND);
    if (samples == NULL || room < gpu->process_count) return DONE(INSUFFICIENT_SIZE);
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        const struct process* process = &gpu->processes[index];
        samples[index] = (process_sample){process->pid,
                                          (uint64_t)now_milliseconds() * 1000,
                                          process->sm_utilisation,
                                          process->memory_utilisation,
                                          0,
                                          0};
    }
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(handle_t device, unsigned int* count,
                                                unsigned int* pids) {
    ENTER();
    REQUIRE(count != NULL);
    WITH_TARGET(device);
    if (!gpu->accounting_mode) return DONE(NOT_SUPPORTED);
    uint32_t room = *count;
    *count = gpu->process_count;
    if (pids == NULL || room < gpu->process_count)
        return DONE(gpu->process_count ? INSUFFICIENT_SIZE : SUCCESS);
    for (uint32_t index = 0; index < gpu->process_count; index++)
        pids[index] = gpu->processes[index].pid;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingBufferSize(handle_t device, unsigned int* size) {
    ENTER();
    REQUIRE(size != NULL);
    WITH_TARGET(device);
    *size = MAX_PROCESSES;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(handle_t device, unsigned int pid,
                                                 accounting_stats* stats) {
    ENTER();
    REQUIRE(stats != NULL);
    WITH_TARGET(device);
    if (!gpu->accounting_mode) return DONE(NOT_SUPPORTED);
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        const struct process* process = &gpu->processes[index];
        if (process->pid != pid) continue;
        *stats = (accounting_stats){.gpuUtilization = process->sm_utilisation,
                                    .memoryUtilization = process->memory_utilisation,
                                    .maxMemoryUsage = process->memory_bytes,
                                    .isRunning = 1};
        return DONE(SUCCESS);
    }
    return DONE(NOT_FOUND);
}

/* ---- GPM: two samples, and metrics over the time between them */

struct gpm_sample {
    uint32_t graphics, sm, memory;
};

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(handle_t device, gpm_support* support) {
    ENTER();
    enum { HOPPER = 9 };
    REQUIRE(support != NULL);
    WITH_TARGET(device);
    support->isSupportedDevice = gpu->architecture >= HOPPER;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(struct gpm_sample** sample) {
    ENTER();
    REQUIRE(sample != NULL);
    *sample = calloc(1, sizeof **sample);
    return *sample != NULL ? SUCCESS : NO_MEMORY;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(struct gpm_sample* sample) {
    ENTER();
    free(sample);
    return SUCCESS;
}

static uint32_t instance_utilisation(const struct gpu* gpu, uint32_t gi) {
    uint32_t percent = 0;
    for (uint32_t index = 0; index < gpu->process_count; index++) {
        if (gpu->processes[index].gi == gi) percent += gpu->processes[index].sm_utilisation;
    }
    return percent < 100 ? percent : 100;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(handle_t device, struct gpm_sample* sample) {
    ENTER();
    REQUIRE(sample != NULL);
    WITH_TARGET(device);
    *sample =
        (struct gpm_sample){gpu->gpu_utilisation, gpu->gpu_utilisation, gpu->memory_utilisation};
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(handle_t device, unsigned int gi,
                                        struct gpm_sample* sample) {
    ENTER();
    REQUIRE(sample != NULL && gi < MAX_GI);
    WITH_TARGET(device);
    if (!gpu->gi[gi].live) return DONE(NOT_FOUND);
    uint32_t percent = instance_utilisation(gpu, gi);
    *sample = (struct gpm_sample){percent, percent, 0};
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(gpm_metrics_get* request) {
    ENTER();
    enum { GRAPHICS_UTIL = 1, SM_UTIL = 2, DRAM_BANDWIDTH_UTIL = 10 };
    REQUIRE(request != NULL && request->sample1 != NULL && request->sample2 != NULL);
    const struct gpm_sample* last = request->sample2;
    for (uint32_t index = 0; index < request->numMetrics; index++) {
        gpm_metric* metric = &request->metrics[index];
        metric->nvmlReturn = SUCCESS;
        switch (metric->metricId) {
            case GRAPHICS_UTIL: metric->value = last->graphics; break;
            case SM_UTIL: metric->value = last->sm; break;
            case DRAM_BANDWIDTH_UTIL: metric->value = last->memory; break;
            default: metric->nvmlReturn = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}
