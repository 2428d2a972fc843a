/* Sessions of one process with NVML, faults that were injected, and questions about the system. */
#define _GNU_SOURCE
#include "fake.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint32_t sessions;
static struct home* session_home;
static pthread_mutex_t session_lock = PTHREAD_MUTEX_INITIALIZER;
static char library_version[64]; /* from the name of the file this code was loaded from; "" if it
                                    has none */

__attribute__((constructor)) static void read_library_version(void) {
    Dl_info self;
    char real[PATH_MAX];
    if (dladdr((void*)read_library_version, &self) == 0 || realpath(self.dli_fname, real) == NULL)
        return;
    const char* version = strstr(real, "libnvidia-ml.so.");
    if (version == NULL) return;
    version += strlen("libnvidia-ml.so.");
    if (strchr(version, '.') != NULL)
        snprintf(library_version, sizeof library_version, "%s", version);
}

static bool fault_of(const char* function, struct fault* fault, uint32_t* wake) {
    struct store* store = here->store;
    bool is_faulty = false;
    *wake = __atomic_load_n(&store->fault_wake, __ATOMIC_SEQ_CST);
    read_begin();
    for (uint32_t index = 0; index < store->fault_count && index < MAX_FAULTS; index++) {
        if (strcmp(store->faults[index].function, function) != 0) continue;
        *fault = store->faults[index];
        is_faulty = true;
    }
    read_end();
    return is_faulty;
}

static void pause_for(uint32_t milliseconds) {
    struct timespec left = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* Delays, hangs or fails the function, as the machine's owner asked. */
static nvmlReturn_t suffer(const char* function) {
    struct fault fault;
    uint32_t wake;
    if (__atomic_load_n(&here->store->fault_count, __ATOMIC_ACQUIRE) == 0) return SUCCESS;
    if (!fault_of(function, &fault, &wake)) return SUCCESS;
    if (fault.milliseconds > 0) pause_for(fault.milliseconds);
    while (fault.hangs) {
        wait_for_change(&here->store->fault_wake, wake, -1);
        if (!fault_of(function, &fault, &wake)) return SUCCESS;
    }
    return fault.code;
}

nvmlReturn_t entry(const char* function) {
    if (__atomic_load_n(&sessions, __ATOMIC_ACQUIRE) == 0) return UNINITIALIZED;
    here = session_home;
    return suffer(function);
}

static nvmlReturn_t begin(const char* function) {
    char path[512];
    if (!home_find(path, sizeof path)) return DRIVER_NOT_LOADED;
    struct home* home = home_open(path);
    if (home == NULL) return DRIVER_NOT_LOADED;
    here = home;
    nvmlReturn_t code = suffer(function);
    if (code != SUCCESS) return code;

    struct machine* machine = read_begin();
    bool is_other_version =
        library_version[0] != 0 && strcmp(library_version, machine->driver_version) != 0;
    read_end();
    if (is_other_version) return LIB_RM_VERSION_MISMATCH;

    pthread_mutex_lock(&session_lock);
    session_home = home;
    __atomic_add_fetch(&sessions, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&session_lock);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit(void) { return begin(__func__); }

EXPORT nvmlReturn_t nvmlInit_v2(void) { return begin(__func__); }

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return begin(__func__);
}

EXPORT nvmlReturn_t nvmlShutdown(void) {
    ENTER();
    __atomic_sub_fetch(&sessions, 1, __ATOMIC_SEQ_CST);
    return SUCCESS;
}

/* A function of nvml.h that this machine does not offer. */
nvmlReturn_t unsupported(const char* function) {
    nvmlReturn_t code = entry(function);
    return code != SUCCESS ? code : NOT_SUPPORTED;
}

static const struct {
    int code;
    const char* text;
} error_texts[] = {
    {0, "Success"},
    {1, "Uninitialized"},
    {2, "Invalid Argument"},
    {3, "Not Supported"},
    {4, "Insufficient Permissions"},
    {5, "Already Initialized"},
    {6, "Not Found"},
    {7, "Insufficient Size"},
    {8, "Insufficient External Power"},
    {9, "Driver Not Loaded"},
    {10, "Timeout"},
    {11, "Interrupt Request Issue"},
    {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"},
    {14, "Corrupted infoROM"},
    {15, "GPU is lost"},
    {16, "GPU requires restart"},
    {17, "The operating system has blocked the request."},
    {18, "RM has detected an NVML/RM version mismatch."},
    {19, "In use by another client"},
    {20, "Insufficient Memory"},
    {21, "No data"},
    {22, "vGPU ECC not supported"},
    {23, "Insufficient Resources"},
    {24, "Frequency not supported"},
    {25, "Argument version mismatch"},
    {26, "Deprecated"},
    {27, "Not ready"},
    {28, "GPU not found"},
    {29, "Invalid state"},
    {30, "Reset type not supported"},
};

EXPORT const char* nvmlErrorString(nvmlReturn_t code) {
    for (size_t index = 0; index < sizeof error_texts / sizeof *error_texts; index++) {
        if (error_texts[index].code == code) return error_texts[index].text;
    }
    return "Unknown Error";
}

static nvmlReturn_t copy_text(const char* text, char* to, unsigned int length) {
    if (to == NULL) return INVALID_ARGUMENT;
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
    ENTER();
    struct machine* machine = read_begin();
    return DONE(copy_text(machine->driver_version, version, length));
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
    ENTER();
    struct machine* machine = read_begin();
    return DONE(copy_text(machine->nvml_version, version, length));
}

static nvmlReturn_t cuda_version(int* version) {
    REQUIRE(version != NULL);
    struct machine* machine = read_begin();
    *version = (int)machine->cuda_version;
    return DONE(SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* version) {
    ENTER();
    return cuda_version(version);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
    ENTER();
    return cuda_version(version);
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
    ENTER();
    REQUIRE(name != NULL && length > 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE* file = fopen(path, "re");
    if (file == NULL) return NOT_FOUND;
    size_t size = fread(name, 1, length - 1, file);
    fclose(file);
    name[size] = 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* count) {
    ENTER();
    REQUIRE(count != NULL);
    *count = 0;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int* count) {
    ENTER();
    REQUIRE(count != NULL);
    *count = 0;
    return SUCCESS;
}
