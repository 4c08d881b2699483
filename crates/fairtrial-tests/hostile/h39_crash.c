/* Crashes by doing what is wrong, not by asking for the signal. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "abort";
    volatile int zero = 0, seven = 7;
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "segv") == 0)
        *(volatile int *)8 = 1;
    if (strcmp(how, "bus") == 0) {
        int file = memfd_create("sin", 0);
        volatile char *place = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
        return place[0];
    }
    if (strcmp(how, "fpe") == 0)
#if defined(__x86_64__)
        return seven / zero;
#else
        return kill(getpid(), 8); /* other machines divide by zero without a word */
#endif
    if (strcmp(how, "ill") == 0)
        __builtin_trap();
    return zero;
}
