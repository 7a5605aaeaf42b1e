/* descriptors.c - descriptors that one process hands to another over a connected Unix socket (SCM_RIGHTS),
 * for processes that have no common parent to inherit them from. */
#include "bridge/bridge.h"

#ifdef __linux__
#include <linux/sockios.h>
#endif
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef MSG_CMSG_CLOEXEC
#define MSG_CMSG_CLOEXEC 0
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

/* Room for the control message, aligned as `struct cmsghdr` must be. */
typedef union room {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(PX_DESCRIPTORS_MAX * sizeof(int))];
} room;

/* Sends bytes, with at most PX_DESCRIPTORS_MAX descriptors, which go with the first byte. Never waits.
 * Returns the number of bytes that were taken, or -1 with errno. */
SSize_t px_send_descriptors(int socket, const char *bytes, size_t len, const int *list, size_t count) {
    assert(len > 0 && count <= PX_DESCRIPTORS_MAX);
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    room control = {.bytes = {0}};
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
        Copy(list, CMSG_DATA(&control.head), count * sizeof(int), char);
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Reads bytes, and the descriptors that came with them, up to PX_DESCRIPTORS_MAX in `list`: they are closed
 * on exec, and in processes that are forked (peregrine_hide_from_forks). With `waits`, waits for the first
 * byte as the socket says. Returns the number of bytes, 0 at the end of the stream, or -1 with errno. */
SSize_t px_receive_descriptors(int socket, char *bytes, size_t len, int *list, size_t *count, bool waits) {
    struct iovec part = {.iov_base = bytes, .iov_len = len};
    room control = {.bytes = {0}};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    *count = 0;
    const ssize_t got = recvmsg(socket, &message, (waits ? 0 : MSG_DONTWAIT) | MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        const size_t here = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && *count < PX_DESCRIPTORS_MAX; i++) {
            int fd;
            Copy(CMSG_DATA(head) + i * sizeof(int), &fd, sizeof(int), char);
            peregrine_hide_from_forks(fd, 1);
            list[(*count)++] = fd;
        }
    }
    return got;
}

/* Bytes of memory that the kernel counts for messages which were sent on the socket and not received yet; 0
 * if it does not tell. */
size_t px_unreceived_bytes(int socket) {
#ifdef __linux__
    int bytes = 0;
    return ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
#else
    PERL_UNUSED_VAR(socket);
    return 0;
#endif
}
