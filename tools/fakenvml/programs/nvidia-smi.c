/* A small nvidia-smi on the fake library: what node agents call, and what people look at first. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void* handle_t;
typedef struct {
    uint64_t total, free, used;
} memory;
typedef struct {
    uint32_t id, is_p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    uint64_t memory_mib;
} gi_profile_info;
typedef struct {
    handle_t device;
    uint32_t id, profile, start, size;
} gi_info;
typedef struct {
    uint32_t gpu, memory;
} utilization;

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char* nvmlErrorString(int code);
int nvmlSystemGetDriverVersion(char* version, unsigned int length);
int nvmlSystemGetCudaDriverVersion(int* version);
int nvmlDeviceGetCount_v2(unsigned int* count);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle_t* device);
int nvmlDeviceGetHandleByUUID(const char* uuid, handle_t* device);
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, handle_t* device);
int nvmlDeviceGetIndex(handle_t device, unsigned int* index);
int nvmlDeviceGetName(handle_t device, char* name, unsigned int length);
int nvmlDeviceGetUUID(handle_t device, char* uuid, unsigned int length);
int nvmlDeviceGetSerial(handle_t device, char* serial, unsigned int length);
int nvmlDeviceGetMemoryInfo(handle_t device, memory* info);
int nvmlDeviceGetTemperature(handle_t device, unsigned int sensor, unsigned int* degrees);
int nvmlDeviceGetPowerUsage(handle_t device, unsigned int* milliwatts);
int nvmlDeviceGetUtilizationRates(handle_t device, utilization* rates);
int nvmlDeviceGetComputeMode(handle_t device, unsigned int* mode);
int nvmlDeviceSetComputeMode(handle_t device, unsigned int mode);
int nvmlDeviceGetMigMode(handle_t device, unsigned int* current, unsigned int* pending);
int nvmlDeviceSetMigMode(handle_t device, unsigned int mode, int* activation);
int nvmlDeviceGetMaxMigDeviceCount(handle_t device, unsigned int* count);
int nvmlDeviceGetMigDeviceHandleByIndex(handle_t device, unsigned int index, handle_t* mig);
int nvmlDeviceGetGpuInstanceProfileInfo(handle_t device, unsigned int profile,
                                        gi_profile_info* info);
int nvmlDeviceGetGpuInstances(handle_t device, unsigned int id, handle_t* out, unsigned int* count);
int nvmlDeviceGetGpuInstanceRemainingCapacity(handle_t device, unsigned int id,
                                              unsigned int* count);
int nvmlGpuInstanceGetInfo(handle_t instance, gi_info* info);
int fake_control(const char* home, int argc, const char* const* argv, char* out, size_t size);

#define MAX_GPUS 16
#define PROFILES 18
static const char* const compute_modes[] = {"Default", "Exclusive_Thread", "Prohibited",
                                            "Exclusive_Process"};

static void die(const char* what, int code) {
    fprintf(stderr, "%s: %s\n", what, nvmlErrorString(code));
    exit(code == 9 ? 9 : 255);
}

static const char* home(void) {
    static char path[PATH_MAX];
    const char* given = getenv("FAKE_NVML_HOME");
    if (given != NULL && *given != 0) return given;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) return "";
    path[length] = 0;
    char* driver = strstr(path, "/driver/usr/bin/");
    if (driver != NULL) *driver = 0;
    return path;
}

/* ---- which GPUs a command is about */

static handle_t chosen[MAX_GPUS];
static unsigned int chosen_count;

static void choose_one(const char* name) {
    handle_t device;
    char* end;
    unsigned long index = strtoul(name, &end, 10);
    int code = *end == 0           ? nvmlDeviceGetHandleByIndex_v2((unsigned int)index, &device)
               : strchr(name, ':') ? nvmlDeviceGetHandleByPciBusId_v2(name, &device)
                                   : nvmlDeviceGetHandleByUUID(name, &device);
    if (code != 0) {
        printf("No devices were found for \"%s\"\n", name);
        exit(6);
    }
    if (chosen_count < MAX_GPUS) chosen[chosen_count++] = device;
}

static void choose(const char* list) {
    if (list == NULL) {
        unsigned int count = 0;
        nvmlDeviceGetCount_v2(&count);
        for (unsigned int index = 0; index < count && chosen_count < MAX_GPUS; index++) {
            if (nvmlDeviceGetHandleByIndex_v2(index, &chosen[chosen_count]) == 0)
                chosen_count++;
            else
                printf("Unable to determine the device handle for gpu %u: GPU is lost\n", index);
        }
        return;
    }
    char *names = strdup(list), *rest = NULL;
    for (char* name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        choose_one(name);
    free(names);
}

static unsigned int index_of(handle_t device) {
    unsigned int index = 0;
    nvmlDeviceGetIndex(device, &index);
    return index;
}

/* ---- listings */

static void list_migs(handle_t device) {
    unsigned int count = 0;
    if (nvmlDeviceGetMaxMigDeviceCount(device, &count) != 0) return;
    for (unsigned int index = 0; index < count; index++) {
        handle_t mig;
        char name[160], uuid[96];
        if (nvmlDeviceGetMigDeviceHandleByIndex(device, index, &mig) != 0) continue;
        nvmlDeviceGetName(mig, name, sizeof name);
        nvmlDeviceGetUUID(mig, uuid, sizeof uuid);
        const char* profile = strstr(name, "MIG ");
        printf("  %-18s Device %2u: (UUID: %s)\n", profile ? profile : name, index, uuid);
    }
}

static void list(void) {
    for (unsigned int index = 0; index < chosen_count; index++) {
        char name[96], uuid[96];
        nvmlDeviceGetName(chosen[index], name, sizeof name);
        nvmlDeviceGetUUID(chosen[index], uuid, sizeof uuid);
        printf("GPU %u: %s (UUID: %s)\n", index_of(chosen[index]), name, uuid);
        list_migs(chosen[index]);
    }
}

static void list_gpu_instances(void) {
    printf("| GPU  Name               Profile  Instance  Placement  |\n");
    for (unsigned int index = 0; index < chosen_count; index++) {
        for (unsigned int profile = 0; profile < PROFILES; profile++) {
            gi_profile_info info;
            handle_t instances[16];
            unsigned int count = 0;
            if (nvmlDeviceGetGpuInstanceProfileInfo(chosen[index], profile, &info) != 0) continue;
            if (nvmlDeviceGetGpuInstances(chosen[index], info.id, instances, &count) != 0) continue;
            for (unsigned int number = 0; number < count; number++) {
                gi_info instance;
                nvmlGpuInstanceGetInfo(instances[number], &instance);
                printf("| %3u  MIG %ug %6llu MiB     %5u    %5u      %u:%u      |\n",
                       index_of(chosen[index]), info.slices, (unsigned long long)info.memory_mib,
                       instance.profile, instance.id, instance.start, instance.size);
            }
        }
    }
}

static void list_profiles(void) {
    printf("| GPU  ID  Free/Total  Memory MiB  SM  CE  DEC  ENC  JPEG  OFA |\n");
    for (unsigned int index = 0; index < chosen_count; index++) {
        for (unsigned int profile = 0; profile < PROFILES; profile++) {
            gi_profile_info info;
            unsigned int left = 0;
            if (nvmlDeviceGetGpuInstanceProfileInfo(chosen[index], profile, &info) != 0) continue;
            nvmlDeviceGetGpuInstanceRemainingCapacity(chosen[index], info.id, &left);
            printf("| %3u %3u %5u/%-5u %11llu %3u %3u %4u %4u %5u %4u |\n", index_of(chosen[index]),
                   info.id, left, info.instances, (unsigned long long)info.memory_mib,
                   info.multiprocessors, info.copy, info.decoders, info.encoders, info.jpeg,
                   info.ofa);
        }
    }
}

static void print_field(handle_t device, const char* field, int has_units) {
    char text[160];
    unsigned int number = 0, other = 0;
    memory info = {0};
    utilization rates = {0};
    const char* mib = has_units ? " MiB" : "";
    nvmlDeviceGetMemoryInfo(device, &info);
    if (!strcmp(field, "index"))
        printf("%u", index_of(device));
    else if (!strcmp(field, "name") && nvmlDeviceGetName(device, text, sizeof text) == 0)
        printf("%s", text);
    else if ((!strcmp(field, "uuid") || !strcmp(field, "gpu_uuid"))
             && nvmlDeviceGetUUID(device, text, sizeof text) == 0)
        printf("%s", text);
    else if (!strcmp(field, "serial") && nvmlDeviceGetSerial(device, text, sizeof text) == 0)
        printf("%s", text);
    else if (!strcmp(field, "driver_version") && nvmlSystemGetDriverVersion(text, sizeof text) == 0)
        printf("%s", text);
    else if (!strcmp(field, "memory.total"))
        printf("%llu%s", (unsigned long long)(info.total >> 20), mib);
    else if (!strcmp(field, "memory.used"))
        printf("%llu%s", (unsigned long long)(info.used >> 20), mib);
    else if (!strcmp(field, "memory.free"))
        printf("%llu%s", (unsigned long long)(info.free >> 20), mib);
    else if (!strcmp(field, "temperature.gpu") && nvmlDeviceGetTemperature(device, 0, &number) == 0)
        printf("%u", number);
    else if (!strcmp(field, "power.draw") && nvmlDeviceGetPowerUsage(device, &number) == 0)
        printf("%.2f%s", number / 1000.0, has_units ? " W" : "");
    else if (!strcmp(field, "utilization.gpu")
             && nvmlDeviceGetUtilizationRates(device, &rates) == 0)
        printf("%u%s", rates.gpu, has_units ? " %" : "");
    else if (!strcmp(field, "compute_mode") && nvmlDeviceGetComputeMode(device, &number) == 0)
        printf("%s", compute_modes[number & 3]);
    else if (!strcmp(field, "mig.mode.current")
             && nvmlDeviceGetMigMode(device, &number, &other) == 0)
        printf("%s", number ? "Enabled" : "Disabled");
    else if (!strcmp(field, "mig.mode.pending")
             && nvmlDeviceGetMigMode(device, &number, &other) == 0)
        printf("%s", other ? "Enabled" : "Disabled");
    else
        printf("[N/A]");
}

static void query(const char* fields, const char* format) {
    int has_header = strstr(format, "noheader") == NULL,
        has_units = strstr(format, "nounits") == NULL;
    if (has_header) printf("%s\n", fields);
    for (unsigned int index = 0; index < chosen_count; index++) {
        char *names = strdup(fields), *rest = NULL;
        for (char* name = strtok_r(names, ",", &rest); name != NULL;
             name = strtok_r(NULL, ",", &rest)) {
            while (*name == ' ') name++;
            if (name != names) printf(", ");
            print_field(chosen[index], name, has_units);
        }
        printf("\n");
        free(names);
    }
}

static void overview(void) {
    char version[80];
    int cuda = 0;
    nvmlSystemGetDriverVersion(version, sizeof version);
    nvmlSystemGetCudaDriverVersion(&cuda);
    printf("NVIDIA-SMI (fake)   Driver Version: %s   CUDA Version: %d.%d\n", version, cuda / 1000,
           cuda % 1000 / 10);
    query("index,name,memory.used,memory.total,utilization.gpu,compute_mode,mig.mode.current",
          "noheader");
}

/* ---- settings */

static int set_compute_mode(const char* text) {
    unsigned int mode = (unsigned int)strtoul(text, NULL, 10);
    for (unsigned int index = 0; index < 4; index++) {
        if (strcasecmp(text, compute_modes[index]) == 0) mode = index;
    }
    for (unsigned int index = 0; index < chosen_count; index++) {
        int code = nvmlDeviceSetComputeMode(chosen[index], mode);
        if (code != 0) die("Unable to set the compute mode", code);
        printf("Set compute mode to %s for GPU %u.\n", compute_modes[mode & 3],
               index_of(chosen[index]));
    }
    return 0;
}

static int command_gpus(const char* verb, const char* name, const char* value) {
    for (unsigned int index = 0; index < chosen_count; index++) {
        char number[16];
        snprintf(number, sizeof number, "%u", index_of(chosen[index]));
        const char* arguments[] = {verb, number, name, value};
        int code = fake_control(home(), name == NULL ? 2 : 4, arguments, NULL, 0);
        if (code != 0) die(verb, code);
    }
    return 0;
}

static int set_mig_mode(const char* text) {
    for (unsigned int index = 0; index < chosen_count; index++) {
        int activation = 0;
        int code =
            nvmlDeviceSetMigMode(chosen[index], (unsigned int)strtoul(text, NULL, 10), &activation);
        if (code != 0) die("Unable to set the MIG mode", code);
        if (activation != 0)
            printf("Warning: MIG mode is in pending state for GPU %u: %s\n",
                   index_of(chosen[index]), nvmlErrorString(activation));
    }
    printf("All done.\n");
    return 0;
}

/* The value of an option: "-i 0", "--id 0" or "--id=0". */
static const char* option(int argc, char** argv, const char* brief, const char* full) {
    size_t length = strlen(full);
    for (int index = 1; index < argc; index++) {
        if ((strcmp(argv[index], brief) == 0 || strcmp(argv[index], full) == 0) && index + 1 < argc)
            return argv[index + 1];
        if (strncmp(argv[index], full, length) == 0 && argv[index][length] == '=')
            return argv[index] + length + 1;
    }
    return NULL;
}

static int has(int argc, char** argv, const char* brief, const char* full) {
    for (int index = 1; index < argc; index++) {
        if (strcmp(argv[index], brief) == 0 || strcmp(argv[index], full) == 0) return 1;
    }
    return 0;
}

int main(int argc, char** argv) {
    int code = nvmlInit_v2();
    if (code != 0) die("NVIDIA-SMI has failed", code);
    choose(option(argc, argv, "-i", "--id"));
    const char* value;
    if (argc > 1 && strcmp(argv[1], "compute-policy") == 0) {
        value = option(argc, argv, "--set-timeslice", "--set-timeslice");
        return value != NULL ? command_gpus("set", "time_slice", value) : 2;
    }
    if (argc > 1 && strcmp(argv[1], "mig") == 0) {
        if (has(argc, argv, "-lgi", "--list-gpu-instances"))
            list_gpu_instances();
        else if (has(argc, argv, "-lgip", "--list-gpu-instance-profiles"))
            list_profiles();
        else
            return 2;
    } else if (has(argc, argv, "-L", "--list-gpus")) {
        list();
    } else if ((value = option(argc, argv, "-c", "--compute-mode")) != NULL) {
        return set_compute_mode(value);
    } else if ((value = option(argc, argv, "-mig", "--multi-instance-gpu")) != NULL) {
        return set_mig_mode(value);
    } else if (has(argc, argv, "-r", "--gpu-reset")) {
        return command_gpus("reset", NULL, NULL);
    } else if ((value = option(argc, argv, "--query-gpu", "--query-gpu")) != NULL) {
        const char* format = option(argc, argv, "--format", "--format");
        query(value, format != NULL ? format : "");
    } else {
        overview();
    }
    nvmlShutdown();
    return 0;
}
