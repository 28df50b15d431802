/* A stand-in for the Python interpreter in tests. It runs a program in a copy of a process that has imported the large
 * packages already (server.py), which spares seconds a program. It passes signals on to the copy and ends as the copy
 * does. When it is killed, the server kills the copy.
 *
 * It starts the real interpreter (REAL, set when this is compiled) where a copy would not do: WARM_PYTHON does not name
 * the server's socket, the user is another, a flag or variable changes how Python or the loader starts.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_FILES = 250 };
extern char **environ;

static int starts_with(const char *text, const char *head) { return strncmp(text, head, strlen(head)) == 0; }

/* Whether a copy behaves as a new interpreter would with these arguments and this environment. */
static int fits(int argc, char **argv) {
    static const char *harmless[] = {"PYTHONPATH=", "PYTHONDONTWRITEBYTECODE=", "PYTHONUNBUFFERED=", NULL};
    int i = 1;
    while (i < argc && (!strcmp(argv[i], "-I") || !strcmp(argv[i], "-S") || !strcmp(argv[i], "-P") || !strcmp(argv[i], "-u")))
        i++;
    if (i == argc || (argv[i][0] == '-' && ((strcmp(argv[i], "-m") && strcmp(argv[i], "-c")) || i + 1 == argc)))
        return 0;
    for (char **one = environ; *one; one++) {
        if (starts_with(*one, "LD_PRELOAD=") || starts_with(*one, "LD_LIBRARY_PATH="))
            return 0;
        int known = !starts_with(*one, "PYTHON");
        for (const char **name = harmless; *name && !known; name++)
            known = starts_with(*one, *name);
        if (!known)
            return 0;
    }
    return 1;
}

static void put(char **end, const void *data, size_t size) {
    memcpy(*end, data, size);
    *end += size;
}

/* Send the folder, the arguments, the environment and all open files. Those files are then the copy's alone. */
static int request(int line, int argc, char **argv) {
    int files[MOST_FILES];
    uint32_t count[4] = {0, (uint32_t)argc, 0, 0};
    char folder[4096];
    DIR *open_files = opendir("/proc/self/fd");
    if (!open_files || !getcwd(folder, sizeof folder))
        return -1;
    for (struct dirent *one; (one = readdir(open_files)) && count[3] < MOST_FILES;) {
        int file = atoi(one->d_name);
        if (one->d_name[0] != '.' && file != line && file != dirfd(open_files))
            files[count[3]++] = file;
    }
    closedir(open_files);

    size_t size = sizeof count + strlen(folder) + 1 + count[3] * sizeof(int);
    for (int i = 0; i < argc; i++)
        size += strlen(argv[i]) + 1;
    for (char **one = environ; *one; one++, count[2]++)
        size += strlen(*one) + 1;
    char *message = malloc(size), *end = message;
    if (!message)
        return -1;
    count[0] = (uint32_t)size;
    put(&end, count, sizeof count);
    put(&end, files, count[3] * sizeof(int));
    put(&end, folder, strlen(folder) + 1);
    for (int i = 0; i < argc; i++)
        put(&end, argv[i], strlen(argv[i]) + 1);
    for (char **one = environ; *one; one++)
        put(&end, *one, strlen(*one) + 1);

    union {
        char space[CMSG_SPACE(sizeof files)];
        struct cmsghdr align;
    } control;
    struct iovec head = {message, sizeof count};
    struct msghdr first = {.msg_iov = &head, .msg_iovlen = 1};
    if (count[3]) {
        first.msg_control = control.space;
        first.msg_controllen = CMSG_SPACE(count[3] * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&first);
        *rights = (struct cmsghdr){.cmsg_len = CMSG_LEN(count[3] * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(rights), files, count[3] * sizeof(int));
    }
    if (sendmsg(line, &first, MSG_NOSIGNAL) != sizeof count)
        return -1;
    for (char *rest = message + sizeof count; rest < end;) {
        ssize_t sent = send(line, rest, (size_t)(end - rest), MSG_NOSIGNAL);
        if (sent <= 0)
            return -1;
        rest += sent;
    }
    for (uint32_t i = 0; i < count[3]; i++)
        close(files[i]);
    return 0;
}

static void end_as(int status) {
    if (status < 0) {
        struct rlimit none = {0, 0};
        sigset_t all;
        setrlimit(RLIMIT_CORE, &none);
        signal(-status, SIG_DFL);
        sigfillset(&all);
        sigprocmask(SIG_UNBLOCK, &all, NULL);
        kill(getpid(), -status);
    }
    _exit(status < 0 ? 128 - status : status);
}

int main(int argc, char **argv) {
    const char *address = getenv("WARM_PYTHON");
    struct sockaddr_un place = {.sun_family = AF_UNIX};
    if (address && strlen(address) < sizeof place.sun_path && fits(argc, argv)) {
        strcpy(place.sun_path, address);
        int line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (line >= 0 && connect(line, (struct sockaddr *)&place, sizeof place) == 0) {
            sigset_t all, before;
            sigfillset(&all);
            sigprocmask(SIG_BLOCK, &all, &before);
            int32_t pid, status;
            if (request(line, argc, argv) != 0 || recv(line, &pid, sizeof pid, MSG_WAITALL) != sizeof pid)
                _exit(125);
            struct pollfd ready[2] = {{.fd = line, .events = POLLIN}, {.fd = signalfd(-1, &all, SFD_CLOEXEC), .events = POLLIN}};
            for (;;) {
                poll(ready, 2, -1);
                if (ready[0].revents) {
                    if (recv(line, &status, sizeof status, MSG_WAITALL) != sizeof status)
                        _exit(125); /* the server was killed */
                    end_as(status);
                }
                struct signalfd_siginfo sent;
                if (ready[1].revents && read(ready[1].fd, &sent, sizeof sent) == sizeof sent)
                    kill(pid, (int)sent.ssi_signo);
            }
        }
        if (line >= 0)
            close(line);
    }
    argv[0] = REAL;
    execv(REAL, argv);
    return 126;
}
