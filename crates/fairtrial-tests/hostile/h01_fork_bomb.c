/* Forks for ever, every child too; who cannot waits a little, so that the machine can still be asked. */
#include <unistd.h>

int main(void) {
    for (;;)
        if (fork() == -1)
            usleep(500000);
}
