/* A vfork child that never execs: its parent hangs in the kernel, where no signal but SIGKILL reaches it. */
#define _GNU_SOURCE
#include <unistd.h>

int main(void) {
    if (vfork() == 0)
        for (;;)
            pause();
    return 0;
}
