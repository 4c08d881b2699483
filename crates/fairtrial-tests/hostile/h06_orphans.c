/* Makes as many orphans as it is told, in waves of 100, and waits for none; each ends at once, and the next wave comes
 * when the last is gone: their pipe says so. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    int orphans = count > 1 ? atoi(words[1]) : 10000;
    for (int wave = 0; wave < orphans / 100; wave++) {
        int ends[2];
        char byte;
        if (pipe(ends) == -1) {
            printf("wave %d: %s\n", wave, strerror(errno));
            return 1;
        }
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
        close(ends[1]);
        while (read(ends[0], &byte, 1) > 0) {
        }
        close(ends[0]);
    }
    return 0;
}
