/* The MPS control daemon and its command line, without CUDA behind it.
 *
 * -d starts the daemon in the background, -f in the foreground; without either, commands are read
 * from standard input and sent to the daemon of CUDA_MPS_PIPE_DIRECTORY. Limits and servers are
 * remembered, and recorded in the state and history of the fake machine if one is found. The
 * control file is a socket, opened from inside its directory, so that long directory names do no
 * harm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

int fake_control(const char* home, int argc, const char* const* argv, char* out, size_t size);

#define LINE 512
#define MAX_LIMITS 64

static char home[PATH_MAX], program_directory[PATH_MAX], own_pid[16];
static double thread_percentage = 100.0;
static struct {
    char device[96], value[64];
} limits[MAX_LIMITS];
static int limit_count;
static pid_t server;
static FILE* log_file;

static const char* variable(const char* name, const char* otherwise) {
    const char* value = getenv(name);
    return value != NULL && *value != 0 ? value : otherwise;
}

static const char* pipe_directory(void) {
    return variable("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
}

static void find_home(void) {
    ssize_t length = readlink("/proc/self/exe", program_directory, sizeof program_directory - 1);
    program_directory[length < 0 ? 0 : length] = 0;
    char* driver = strstr(program_directory, "/driver/usr/bin/");
    const char* given = getenv("FAKE_NVML_HOME");
    if (given != NULL && *given != 0)
        snprintf(home, sizeof home, "%s", given);
    else if (driver != NULL)
        snprintf(home, sizeof home, "%.*s", (int)(driver - program_directory), program_directory);
    char* slash = strrchr(program_directory, '/');
    if (slash != NULL) *slash = 0;
}

static void report(const char* verb, const char* value, const char* devices) {
    const char* arguments[] = {"mps", verb, own_pid, value, devices};
    if (home[0] != 0) fake_control(home, devices != NULL ? 5 : 4, arguments, NULL, 0);
}

static int control_socket(int is_daemon) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "control"};
    int channel = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!is_daemon)
        return connect(channel, (void*)&address, sizeof address) == 0 ? channel
                                                                      : (close(channel), -1);
    unlink("control");
    if (bind(channel, (void*)&address, sizeof address) != 0 || listen(channel, 16) != 0) return -1;
    chmod("control", 0666);
    return channel;
}

/* ---- the daemon */

static void start_server(void) {
    if (server > 0 && waitpid(server, NULL, WNOHANG) == 0) return;
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-server", program_directory);
    server = fork();
    if (server == 0) {
        execl(path, "nvidia-cuda-mps-server", (char*)NULL);
        _exit(127);
    }
    char pid[16];
    snprintf(pid, sizeof pid, "%d", server);
    fprintf(log_file, "Starting new server %s\n", pid);
}

static void stop_server(void) {
    if (server <= 0) return;
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
    server = 0;
}

static void set_limit(const char* device, const char* value) {
    int index = 0;
    while (index < limit_count && strcmp(limits[index].device, device) != 0) index++;
    if (index == MAX_LIMITS) return;
    if (index == limit_count) limit_count++;
    snprintf(limits[index].device, sizeof limits[index].device, "%s", device);
    snprintf(limits[index].value, sizeof limits[index].value, "%s", value);
    char text[sizeof limits[index] + 2];
    snprintf(text, sizeof text, "%s=%s", device, value);
    report("memory", text, NULL);
}

static const char* limit_of(const char* device) {
    for (int index = 0; index < limit_count; index++) {
        if (strcmp(limits[index].device, device) == 0) return limits[index].value;
    }
    return "0G";
}

/* One command; its answer. False for the last one. */
static int obey(char* line, char* answer, size_t size) {
    char *rest = NULL, *verb = strtok_r(line, " \t\r\n", &rest);
    char *first = strtok_r(NULL, " \t\r\n", &rest), *second = strtok_r(NULL, " \t\r\n", &rest);
    answer[0] = 0;
    if (verb == NULL) return 1;
    fprintf(log_file, "NEW UI, command %s\n", verb);
    fflush(log_file);
    if (strcmp(verb, "quit") == 0) return 0;
    if (strcmp(verb, "set_default_active_thread_percentage") == 0 && first != NULL) {
        double percentage = strtod(first, NULL);
        if (percentage <= 0 || percentage > 100)
            return snprintf(answer, size, "Invalid active thread percentage\n"), 1;
        thread_percentage = percentage;
        report("threads", first, NULL);
        snprintf(answer, size, "%.1f\n", thread_percentage);
    } else if (strcmp(verb, "get_default_active_thread_percentage") == 0) {
        snprintf(answer, size, "%.1f\n", thread_percentage);
    } else if (strcmp(verb, "set_default_device_pinned_mem_limit") == 0 && second != NULL) {
        set_limit(first, second);
    } else if (strcmp(verb, "get_default_device_pinned_mem_limit") == 0 && first != NULL) {
        snprintf(answer, size, "%s\n", limit_of(first));
    } else if (strcmp(verb, "start_server") == 0) {
        start_server();
    } else if (strcmp(verb, "get_server_list") == 0) {
        if (server > 0) snprintf(answer, size, "%d\n", server);
    } else {
        snprintf(answer, size, "Unknown command: %s\n", verb);
    }
    return 1;
}

static volatile sig_atomic_t is_ended;
static void end(int signal_number) {
    (void)signal_number;
    is_ended = 1;
}

static void serve(int channel) {
    int goes_on = 1;
    while (goes_on && !is_ended) {
        int client = accept4(channel, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) continue;
        FILE* stream = fdopen(client, "r+");
        char line[LINE], answer[LINE];
        while (goes_on && stream != NULL && fgets(line, sizeof line, stream) != NULL) {
            goes_on = obey(line, answer, sizeof answer);
            fprintf(stream, "%s\n", answer[0] ? answer : "");
            fflush(stream);
        }
        if (stream != NULL) fclose(stream);
    }
}

static int daemon_main(int is_background) {
    const char* logs = variable("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps");
    char path[PATH_MAX + 16];
    mkdir(logs, 0777);
    snprintf(path, sizeof path, "%s/control.log", logs);
    log_file = fopen(path, "ae");
    if (log_file == NULL) log_file = fopen("/dev/null", "we");
    int present = control_socket(0);
    if (present >= 0) {
        fprintf(stderr, "An instance of this daemon is already running\n");
        return 1;
    }
    int channel = control_socket(1);
    if (channel < 0) {
        fprintf(stderr, "Cannot make the control pipe in %s: %s\n", pipe_directory(),
                strerror(errno));
        return 1;
    }
    if (is_background) {
        pid_t child = fork();
        if (child != 0) return child < 0;
        setsid();
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int stream = 0; stream < 3; stream++) dup2(null, stream);
    }
    snprintf(own_pid, sizeof own_pid, "%d", getpid());
    FILE* pid_file = fopen("nvidia-cuda-mps-control.pid", "we");
    if (pid_file != NULL) {
        fprintf(pid_file, "%s\n", own_pid);
        fclose(pid_file);
    }
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    fprintf(log_file, "Start\n");
    fflush(log_file);
    report("start", pipe_directory(), variable("CUDA_VISIBLE_DEVICES", ""));
    serve(channel);
    stop_server();
    report("stop", "", NULL);
    unlink("control");
    unlink("nvidia-cuda-mps-control.pid");
    return 0;
}

/* ---- the command line */

static int client_main(void) {
    int channel = control_socket(0);
    if (channel < 0) {
        fprintf(stderr, "Cannot find MPS control daemon process\n");
        return 1;
    }
    FILE* stream = fdopen(channel, "r+");
    char line[LINE], answer[LINE];
    while (stream != NULL && fgets(line, sizeof line, stdin) != NULL) {
        fprintf(stream, "%s", line);
        if (strchr(line, '\n') == NULL) fputc('\n', stream);
        fflush(stream);
        while (fgets(answer, sizeof answer, stream) != NULL && answer[0] != '\n')
            fputs(answer, stdout);
    }
    return 0;
}

int main(int argc, char** argv) {
    find_home();
    mkdir(pipe_directory(), 0777);
    if (chdir(pipe_directory()) != 0) {
        fprintf(stderr, "%s: %s\n", pipe_directory(), strerror(errno));
        return 1;
    }
    if (argc > 1 && strcmp(argv[1], "-d") == 0) return daemon_main(1);
    if (argc > 1 && strcmp(argv[1], "-f") == 0) return daemon_main(0);
    return client_main();
}
