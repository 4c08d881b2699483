/* Makes as many orphans as it is told, in waves of 100, and waits for none; each ends at once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    int orphans = count > 1 ? atoi(words[1]) : 10000;
    for (int wave = 0; wave < orphans / 100; wave++) {
        pid_t parent = fork();
        if (parent == -1) {
            printf("wave %d: %s\n", wave, strerror(errno));
            return 1;
        }
        if (parent == 0) {
            for (int orphan = 0; orphan < 99; orphan++)
                if (fork() == 0)
                    _exit(0);
            _exit(0);
        }
        usleep(1000);
    }
    return 0;
}
