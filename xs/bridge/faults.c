/* faults.c - reads memory that may be in the middle of a change.
 *
 * A signal handler that reads the state of an interpreter may have interrupted Perl while that makes or drops
 * a frame of its stack, or moves a table. Pointers there may lead anywhere. A fault of such a handler ends
 * its reading, not the process.
 *
 * The process's actions at a fault are replaced only while a thread reads, and one thread reads at a time: at
 * all other times the handlers of the application, if there are any, are in force. */
#include "bridge/bridge.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static const int faults[] = {SIGSEGV, SIGBUS};

/* The thread that reads, and where it goes on after a fault. */
static bool is_reading;
static pthread_t reader;
static sigjmp_buf way_out;

/* The actions at a fault that the process had before. They hold while no thread reads. */
static struct sigaction otherwise[C_ARRAY_LENGTH(faults)];

static void leave_faults_alone(void) {
    for (size_t i = 0; i < C_ARRAY_LENGTH(faults); i++) (void)sigaction(faults[i], &otherwise[i], NULL);
}

/* Handles a fault: the thread that reads leaves its function. For other threads the actions before are
 * restored, and the instruction faults again; a signal that a process has sent is raised again. */
static void on_fault(int number, siginfo_t *info, void *context) {
    PERL_UNUSED_VAR(context);
    const bool is_sent = info->si_code <= 0;
    if (!is_sent && pthread_equal(reader, pthread_self())) siglongjmp(way_out, 1);
    leave_faults_alone();
    if (is_sent) (void)raise(number);
}

static void catch_faults(void) {
    struct sigaction action;
    Zero(&action, 1, struct sigaction);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    for (size_t i = 0; i < C_ARRAY_LENGTH(faults); i++) (void)sigaction(faults[i], &action, &otherwise[i]);
}

/* Calls a function that only reads. False: the function met a fault and was left there. May be called in a
 * signal handler, if no other handler that calls this function can interrupt it. */
bool px_faults_survive(void (*read)(void *), void *argument) {
    volatile bool is_whole = false;
    while (__atomic_test_and_set(&is_reading, __ATOMIC_ACQUIRE)) (void)poll(NULL, 0, 1);
    reader = pthread_self();
    if (sigsetjmp(way_out, 1) == 0) {
        catch_faults();
        read(argument);
        is_whole = true;
    }
    leave_faults_alone();
    __atomic_clear(&is_reading, __ATOMIC_RELEASE);
    return is_whole;
}
