/* What the kernel driver shows of partitions: access files under proc/, device nodes under
 * driver/dev/.
 *
 * Every GPU and compute instance has a capability: a file that names a minor number, and a
 * character device with that minor. Given the machine, makes the files of one GPU match it. Safe to
 * repeat.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* As the driver numbers them: 1 and 2 are for configuring and monitoring; then nine for each of 15
 * instances. */
#define FIRST_MINOR 3
#define MINORS_PER_INSTANCE (1 + MAX_CI)
#define CAPABILITY_MODE 0444

static uint32_t minor_of(uint32_t gpu_minor, uint32_t gi) {
    return FIRST_MINOR + gpu_minor * MAX_GI * MINORS_PER_INSTANCE + gi * MINORS_PER_INSTANCE;
}

static void write_access(const char* directory, uint32_t minor) {
    char path[800];
    if (mkdir(directory, 0755) != 0 && errno != EEXIST) return;
    snprintf(path, sizeof path, "%s/access", directory);
    if (access(path, F_OK) == 0) return;
    FILE* file = fopen(path, "we");
    if (file == NULL) return;
    fprintf(file, "DeviceFileMinor: %u\nDeviceFileMode: %u\nDeviceFileModify: 1\n", minor,
            CAPABILITY_MODE);
    fclose(file);
}

static void remove_access(const char* directory) {
    char path[800];
    snprintf(path, sizeof path, "%s/access", directory);
    unlink(path);
    rmdir(directory);
}

/* A character device where the kernel allows it, else an empty file. */
static void make_node(const char* path, uint32_t major, uint32_t minor) {
    if (access(path, F_OK) == 0) return;
    if (mknod(path, S_IFCHR | CAPABILITY_MODE, makedev(major, minor)) != 0) {
        int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, CAPABILITY_MODE);
        if (file >= 0) close(file);
    }
    chmod(path, CAPABILITY_MODE); /* whatever the umask of this process is */
}

static void show(const struct machine* machine, const char* directory, uint32_t minor,
                 bool is_live) {
    char node[800];
    snprintf(node, sizeof node, "%s/driver/dev/nvidia-caps/nvidia-cap%u", here->path, minor);
    if (is_live) {
        write_access(directory, minor);
        make_node(node, machine->caps_major, minor);
    } else {
        remove_access(directory);
        unlink(node);
    }
}

static bool is_shown(const char* directory) { return access(directory, F_OK) == 0; }

void files_synchronise(const struct machine* machine, uint32_t index) {
    const struct gpu* gpu = &machine->gpus[index];
    if (!gpu->present || !gpu->mig_capable) return;
    for (uint32_t gi = 0; gi < MAX_GI; gi++) {
        char directory[700], compute[760];
        snprintf(directory, sizeof directory, "%s/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u",
                 here->path, gpu->minor, gi);
        bool is_live = gpu->gi[gi].live;
        if (!is_live && !is_shown(directory)) continue;
        if (is_live) show(machine, directory, minor_of(gpu->minor, gi), true);
        for (uint32_t ci = 0; ci < MAX_CI; ci++) {
            snprintf(compute, sizeof compute, "%s/ci%u", directory, ci);
            bool is_live_ci = is_live && gpu->gi[gi].ci[ci].live;
            if (is_live_ci || is_shown(compute)) {
                show(machine, compute, minor_of(gpu->minor, gi) + 1 + ci, is_live_ci);
            }
        }
        if (!is_live) show(machine, directory, minor_of(gpu->minor, gi), false);
    }
}
