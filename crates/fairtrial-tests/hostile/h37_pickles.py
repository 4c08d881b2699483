# Answers with something that would run a command when it is unpickled.
class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def attack(places, what):
    mark = os.path.join(places["outside"], "exploded")
    if what == "nested":
        return {"harmless": [1, 2, {"deep": Bomb(mark)}]}
    return Bomb(mark)
