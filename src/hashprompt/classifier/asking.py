"""One version of a classifier, loaded, and what it answers."""

from collections.abc import Iterable
from dataclasses import dataclass

from hashprompt.classifier.learner import Learner, Setup
from hashprompt.classifier.questions import Answer, Question
from hashprompt.classifier.store import Store
from hashprompt.data.reading.image_stores import PhotoBatch

REMINDERS = 3


@dataclass(frozen=True)
class Opened:
    """A version that can be asked."""

    number: int
    learner: Learner
    reminders: list[tuple[str, str]]  # class and learn of each cell

    @classmethod
    def load(cls, store: Store, setup: Setup, number: int) -> "Opened":
        version = store.version(number)
        learner = Learner(setup, version.info, store.tensors(version))
        classes, learns = version.info["classes"], version.info["batch_names"]
        return cls(number, learner, [(classes[c], learns[t]) for t, c in learner.cells])

    def answers(
        self, questions: Iterable[Question], threshold: float, batch_size: int
    ) -> list[Answer]:
        """One answer to each question, batch by batch, so that a large folder fits in memory."""
        answers: list[Answer] = []
        waiting: list[Question] = []
        for question in questions:
            waiting.append(question)
            if len(waiting) == batch_size:
                answers += self._answer(waiting, threshold)
                waiting = []
        return answers + self._answer(waiting, threshold)

    def _answer(self, asked: list[Question], threshold: float) -> list[Answer]:
        readable = [q.image for q in asked if q.image is not None]
        if not readable:
            return [Answer(q.name, error=q.error) for q in asked]
        learner, info = self.learner, self.learner.info
        said = learner.ask(PhotoBatch(readable))
        chances = learner.probabilities(said.logits).tolist()
        unknown = learner.unknown(said.strange).tolist()
        near = said.distances.topk(min(REMINDERS, said.distances.shape[1]), largest=False)
        answers, row = [], 0
        for question in asked:
            if question.image is None:
                answers.append(Answer(question.name, error=question.error))
                continue
            ranked = sorted(zip(info["classes"], chances[row], strict=True), key=lambda p: -p[1])
            best = ranked[0][0]
            cells = zip(near.indices[row].tolist(), near.values[row].tolist(), strict=True)
            answers.append(
                Answer(
                    name=question.name,
                    label=int(best) if info["integer_labels"] else best,
                    confidence=ranked[0][1],
                    probabilities=dict(ranked),
                    unknown=unknown[row],
                    is_unknown=unknown[row] > threshold,
                    reminds_of=[
                        {
                            "class": self.reminders[cell][0],
                            "learned": self.reminders[cell][1],
                            "distance": round(distance, 3),
                        }
                        for cell, distance in cells
                    ],
                    error=None,
                )
            )
            row += 1
        return answers
