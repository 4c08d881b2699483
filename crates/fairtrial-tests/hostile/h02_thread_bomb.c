/* Starts threads for ever. */
#include <pthread.h>
#include <unistd.h>

static void *stay(void *unused) {
    for (;;)
        pause();
    return unused;
}

int main(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, &small, stay, NULL) != 0)
            usleep(500000);
    }
}
