/* Ignores every signal that can be ignored, blocks the rest, and goes on. */
#include <signal.h>
#include <unistd.h>

int main(void) {
    sigset_t all;
    sigfillset(&all);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_IGN);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int second = 0; second < 300; second++)
        sleep(1);
    return 0;
}
