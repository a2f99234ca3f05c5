"""A pipeline of blocks, each copied and then computed, timed in one right and many wrong ways."""


def right(copies, computes, slots):
    return pipeline(copies, computes, slots)


def pipeline(copies, computes, slots, *, back=0, link=True, device=True):
    """`back`: how many blocks too far (or too near) the slot's last user is; `link`, `device`: whether the
    queue's order counts."""
    done, copied = [], 0.0
    for number, (copy, compute) in enumerate(zip(copies, computes, strict=True)):
        before = number - slots - back
        copied = max(done[before] if before >= 0 else 0.0, copied if link else 0.0) + copy
        done.append(max(copied, done[-1] if done and device else 0.0) + compute)
    return done[-1]


def no_slots(copies, computes, slots):
    return pipeline(copies, computes, len(copies))


def one_slot_more(copies, computes, slots):
    return pipeline(copies, computes, slots, back=1)


def one_slot_less(copies, computes, slots):
    return pipeline(copies, computes, max(1, slots - 1))


def copies_at_once(copies, computes, slots):
    return pipeline(copies, computes, slots, link=False)


def computes_at_once(copies, computes, slots):
    return pipeline(copies, computes, slots, device=False)


def added(copies, computes, slots):
    return sum(copies) + sum(computes)


def larger(copies, computes, slots):
    return max(sum(copies), sum(computes))


def larger_of_each(copies, computes, slots):
    return sum(max(pair) for pair in zip(copies, computes, strict=True))


def first_copy_then_larger(copies, computes, slots):
    return copies[0] + sum(max(pair) for pair in zip([*copies[1:], 0.0], computes, strict=True))


def last_copy(copies, computes, slots):
    return pipeline(copies, [*computes[:-1], 0.0], slots)
