# Gives itself real-time priority; or changes priority, processors and limits of its parent and of a sibling call.
import resource


def real_time():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def lower(pid):
    os.setpriority(os.PRIO_PROCESS, pid, 19)


def confine(pid):
    os.sched_setaffinity(pid, {min(os.sched_getaffinity(pid))})


def limit(pid):
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (40, 40))


def attack(places, what):
    if what == "real_time":
        return [attempt("SCHED_FIFO", real_time)]
    targets = {"parent": os.getppid() or 1, "sibling": places["sibling_pid"]}
    ways = {"setpriority": lower, "sched_setaffinity": confine, "prlimit": limit}
    return [attempt("%s %s" % (way, name), act, pid) for name, pid in targets.items() for way, act in ways.items()]
