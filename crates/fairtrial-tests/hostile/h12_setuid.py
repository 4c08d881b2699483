# Runs a program whose file says that it runs as somebody else.
import subprocess


def attack(places, what):
    try:
        told = subprocess.run([places["setuid_program"], "-u"], stdout=subprocess.PIPE)
    except OSError as error:
        return {"before": os.geteuid(), "after": os.geteuid(), "refused": errno.errorcode[error.errno]}
    return {"before": os.geteuid(), "after": int(told.stdout), "refused": None}
