#!/usr/bin/env python3
"""How often a job should save: the interval that loses the least, by what a save costs and how often a box dies.

    cadence.py --save-s 40 --mtbf-h 6 [--step-s 1.5] [--grace-s 30]

Python 3.7 or newer, standard library only. One JSON object on the last line; exit status 0, 1 where the
formula does not hold (a save takes too long for a box that dies so often), 2 for a wrong request.

The interval is Young's, sqrt(2 * mtbf * save), rounded down to whole steps. It stands on saves that are
short beside the time between two failures, and on failures that come at any moment alike.
"""

import argparse
import json
import math
import sys

# With saves of a fiftieth of the time between failures the interval is a fifth of that time. Beyond
# it a second failure before the next save is no longer rare, and the formula leaves it out.
MOST_OF_MTBF = 1 / 50


class Parser(argparse.ArgumentParser):
    def error(self, message):
        answer({"ok": False, "code": "BAD_REQUEST", "message": message + "; see --help"}, 2)


def answer(reply, status):
    print(json.dumps(reply), flush=True)
    sys.exit(status)


def positive(text):
    """The number that was given, where it can be a time at all."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 1e-6 <= number <= 1e9:
        raise argparse.ArgumentTypeError(
            "{!r} is no time: give a number above zero, such as 40 or 1.5".format(text[:40])
        )
    return number


def main():
    """The interval is on stdout, with what it costs."""
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--save-s",
        type=positive,
        required=True,
        help="how long one save holds the job up (measure it)",
    )
    parser.add_argument(
        "--mtbf-h",
        type=positive,
        required=True,
        help="hours between two failures, of all the job's boxes together",
    )
    parser.add_argument("--step-s", type=positive, help="how long one step takes")
    parser.add_argument(
        "--grace-s", type=positive, help="notice the platform gives before it takes the box"
    )
    asked = parser.parse_args()
    reply = cadence(asked.save_s, asked.mtbf_h * 3600, asked.step_s, asked.grace_s)
    answer(reply, 0 if reply["ok"] else 1)


def cadence(save_s, mtbf_s, step_s, grace_s):
    """The interval, the part of the paid time that saves and repeated work take, and words for both."""
    interval_s, steps = math.sqrt(2 * mtbf_s * save_s), None
    words = []
    if step_s:
        # A sum of floats must not cost a step: 100 steps of 0.1 s fit into 10 s.
        steps = max(1, int(interval_s / step_s + 1e-9))
        interval_s = steps * step_s
        words.append(
            "save every {}, about every {}".format(
                "step" if steps == 1 else "{:,} steps".format(steps), spoken(interval_s)
            )
        )
    else:
        words.append("save every {}".format(spoken(interval_s)))
    # To save takes C of every W; a failure takes, on average, half an interval of work with it.
    loss = save_s / (interval_s + save_s) + interval_s / (2 * mtbf_s)
    valid = save_s <= MOST_OF_MTBF * mtbf_s and interval_s <= mtbf_s
    if valid:
        words.append("saves and repeated work then take about {:.1%} of the time".format(loss))
    elif save_s > MOST_OF_MTBF * mtbf_s:
        words.append(
            "but do not trust it: a save of {} is not short beside {} between failures; save less, "
            "save faster (to the box's own disk, or in the background), or take a steadier box".format(
                spoken(save_s), spoken(mtbf_s)
            )
        )
    else:
        words.append(
            "but one step takes longer than the box may live: save inside a step, or take a steadier box"
        )
    if grace_s and grace_s < save_s:
        words.append(
            "a notice of {} is too short for a save of {}: a signal cannot save the work, only "
            "the interval can".format(spoken(grace_s), spoken(save_s))
        )
    elif grace_s:
        words.append(
            "a notice of {} is long enough for one more save when it comes; still save by the "
            "interval, as not every end is announced".format(spoken(grace_s))
        )
    reply = {
        "ok": valid,
        "interval_s": round(interval_s, 3),
        "interval_steps": steps,
        "expected_loss_fraction": round(min(1.0, loss), 4),
        "valid": valid,
        "words": "; ".join(words),
    }
    if not valid:
        reply.update(code="NOT_VALID", message=words[1][len("but ") :])
    return reply


def spoken(seconds):
    if seconds < 600:
        return "{:.3g} s".format(seconds)
    if seconds < 7200:
        return "{:.0f} min".format(seconds / 60)
    return "{:.1f} h".format(seconds / 3600)


if __name__ == "__main__":
    main()
