"""A study as its records, made from a quadratic bowl: every loss is the loss of the weighted mean it claims to be.

It trains nothing, so the shape is free: any number of branches, checkpoints and logged points, still running, with a
branch that failed or was rejected, or with names that are hostile to a page.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trajsoup.core.budget import Setting
from trajsoup.core.coefficients import Coefficients
from trajsoup.core.pool import Candidate, Pool
from trajsoup.core.selection import Select
from trajsoup.core.soup import soup_row
from trajsoup.core.splits import Split
from trajsoup.study import records as r
from trajsoup.study.record_files import Records

B = 10**9
FLOOR = 1.92
CATEGORIES = {
    "General Knowledge & Reasoning": (0.66, 0.50),
    "Language Modeling": (0.88, 0.30),
    "Professional Knowledge": (0.67, 0.45),
    "Math": (0.76, 0.65),
    "Code": (0.70, 0.75),
}
STAGES = ("plan", "train", "validation", "screen", "rows", "evaluations", "comparisons", "sweeps", "geometry", "answer")
RECIPES = (
    ("seed", "4321"),
    ("peak_lr", "0.000678"),
    ("global_batch", "128"),
    ("schedule", "constant"),
    ("optimizer", "adamw"),
    ("weight_decay", "0.05"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What kind of study."""

    branches: tuple[str, ...] = ("EXP1", "EXP2", "EXP3", "EXP4", "EXP5")
    checkpoints: int = 24
    logged: int = 200
    horizon: int = 600 * B
    rejected: str | None = None
    failed: str | None = None
    until: str = "answer"  # the last stage that has a record; "train" with unfinished branches is "plan"
    done: float = 1.0  # share of training that metrics show
    title: str = "Five branches of a small MoE"
    seed: int = 7


class Bowl:
    """Checkpoints in a quadratic bowl, and the scores of any row of W over them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.random = np.random.default_rng(shape.seed)
        self.keys: dict[str, list[str]] = {}
        self.tokens: dict[str, int] = {}
        self.x: dict[str, np.ndarray] = {}
        d = 48
        fork = self.random.normal(size=d) * 0.045
        self.fork = fork
        common = self.random.normal(size=d) * 0.008
        for branch in shape.branches:
            offset = self.random.normal(size=d) * (0.03 if branch == shape.rejected else 0.0085)
            self.keys[branch] = []
            for i in range(1, shape.checkpoints + 1):
                t = i / shape.checkpoints
                key = f"branches/{branch}/checkpoint-{i * 50}"
                arrive = 1 - math.exp(-7 * t)
                self.x[key] = fork * (1 - arrive) + (offset + common) * arrive + self.random.normal(size=d) * 0.0105
                self.tokens[key] = shape.horizon * i // shape.checkpoints
                self.keys[branch].append(key)

    def loss(self, weights: dict[str, float] | None) -> float:
        point = self.fork if weights is None else sum(w * self.x[k] for k, w in weights.items())
        return FLOOR + 40 * float(point @ point) / len(point) * 12

    def categories(self, weights: dict[str, float]) -> dict[str, float]:
        loss = self.loss(weights)
        jitter = np.random.default_rng(int(hashlib.sha256(json.dumps(weights).encode()).hexdigest()[:8], 16))
        return {
            name: top - slope * (loss - FLOOR) + float(jitter.normal()) * 0.0012
            for name, (top, slope) in CATEGORIES.items()
        }

    def accuracy(self, weights: dict[str, float]) -> float:
        values = self.categories(weights)
        return sum(values.values()) / len(values)

    def branch_of(self, key: str) -> str:
        return next(b for b, keys in self.keys.items() if key in keys)


def write_study(folder: Path, shape: Shape | None = None) -> Path:
    """Write the records (and metrics) of a study into `folder`; return it."""
    shape = shape or Shape()
    bowl = Bowl(shape)
    records = Records(folder)
    made = _Maker(bowl)
    for stage in STAGES[: STAGES.index(shape.until) + 1]:
        if stage == "sweeps":
            for name, sweep in made.sweeps().items():
                records.write(f"sweeps/{name}", sweep)
        else:
            record = getattr(made, stage)()
            if record is not None:
                records.write(stage, record)
    for branch in shape.branches:
        write_metrics(folder, branch, bowl, points=shape.logged, done=0.35 if branch == shape.failed else shape.done)
    if shape.failed is not None:
        outcome = {"status": "failed", "message": f"the process of {shape.failed} ended with code 1: see its log"}
        (folder / "branches" / shape.failed.replace("/", "_") / "outcome.json").write_text(json.dumps(outcome))
    return folder


def write_metrics(folder: Path, branch: str, bowl: Bowl, *, points: int, done: float = 1.0) -> Path:
    """What a trainer logs."""
    path = folder / "branches" / branch.replace("/", "_") / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    position = bowl.shape.branches.index(branch)
    noise = np.random.default_rng([position, points])
    lines = []
    for i in range(1, int(points * done) + 1):
        t = i / points
        loss = FLOOR + 0.02 + 0.26 * math.exp(-3.2 * t) + 0.004 * position * t + float(noise.normal()) * 0.012
        row = {"tokens": int(bowl.shape.horizon * t), "train_loss": loss, "tokens_per_second": 1.9e6}
        lines.append(json.dumps(row))
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


class _Maker:
    def __init__(self, bowl: Bowl) -> None:
        self.bowl = bowl
        self.shape = bowl.shape
        self.ok = [b for b in self.shape.branches if b not in (self.shape.failed, self.shape.rejected)]
        self.base = self.shape.branches[0]
        self._rows: dict[str, r.RowRecord] = {}

    def plan(self) -> r.PlanRecord:
        recipe = {
            "optimizer": "muon",
            "momentum": "0",
            "peak_lr": "0.000339",
            "global_batch": "256",
            "seed": "1234",
            "schedule": "cosine to 3.39e-05",
            "warmup": "1%",
            "weight_decay": "0.1",
        }
        branches = {}
        for i, name in enumerate(self.shape.branches):
            change = dict(RECIPES[j] for j in ([] if i == 0 else [0, (i - 1) % len(RECIPES)]))
            changed = {field: (recipe[field], value) for field, value in change.items()}
            branches[name] = r.BranchPlan(recipe={**recipe, **change}, changed=changed, steps=1200)
        total = self.shape.horizon * len(self.shape.branches)
        return r.PlanRecord(
            inputs={"study": "0" * 64},
            title=self.shape.title,
            seed=0,
            setting=Setting.EXTENDED,
            horizon=self.shape.horizon,
            checkpoint_every=self.shape.horizon // self.shape.checkpoints,
            sequence_length=4096,
            total_tokens=total,
            total_params=7_900_000_000,
            active_params=1_300_000_000,
            flops_per_token=7.8e9,
            train_flops=7.8e9 * total,
            epochs=0.8,
            corpus={"train": 700 * B, "validation": 2_000_000, "test": 2_000_000},
            branches=branches,
            baseline=self.base,
        )

    def train(self) -> r.TrainRecord:
        return r.TrainRecord(
            inputs={"plan": "1" * 64},
            fork_point="f" * 64,
            branches=tuple(
                r.TrainedBranch(
                    branch=b,
                    status="failed" if b == self.shape.failed else "finished",
                    tokens=int(self.shape.horizon * 0.35) if b == self.shape.failed else self.shape.horizon,
                    message=f"the process of {b} ended with code 1: see its log" if b == self.shape.failed else None,
                    metrics=f"branches/{b.replace('/', '_')}/metrics.jsonl",
                    checkpoints=tuple(
                        r.TrainedCheckpoint(
                            key=k, tokens=self.bowl.tokens[k], sha256=hashlib.sha256(k.encode()).hexdigest()
                        )
                        for k in self.bowl.keys[b]
                    )[: self.shape.checkpoints // 3 if b == self.shape.failed else None],
                )
                for b in self.shape.branches
            ),
        )

    def validation(self) -> r.ValidationRecord:
        return r.ValidationRecord(
            inputs={"train": "2" * 64},
            split=Split.VALIDATION,
            documents=2000,
            fork_point_loss=self.bowl.loss(None),
            fork_point_accuracy=None,
            checkpoints=tuple(
                r.ScoredCheckpoint(
                    key=k,
                    branch=b,
                    tokens=self.bowl.tokens[k],
                    loss=self.bowl.loss({k: 1.0}),
                    accuracy=self.bowl.accuracy({k: 1.0}),
                    probe_loss=self.bowl.loss({k: 1.0}) - 0.02,
                )
                for b in self.shape.branches
                if b != self.shape.failed
                for k in self.bowl.keys[b]
            ),
        )

    def screen(self) -> r.ScreenRecord:
        verdicts = []
        for b in self.shape.branches:
            if b == self.shape.failed:
                continue
            pairs = list(zip(self.bowl.keys[b], self.bowl.keys[self.base], strict=True))
            admitted = b != self.shape.rejected
            drift = 0.0 if b == self.base else 0.0017 * (self.shape.branches.index(b) - 2) if admitted else 0.024
            gaps = tuple(
                (
                    self.bowl.tokens[k],
                    drift * (i + 1) / len(pairs) + 0.05 * (self.bowl.loss({k: 1.0}) / self.bowl.loss({j: 1.0}) - 1),
                )
                for i, (k, j) in enumerate(pairs)
            )
            last = gaps[-1][1]
            base = self.bowl.loss({self.bowl.keys[self.base][-1]: 1.0})
            verdicts.append(
                r.ScreenVerdict(
                    branch=b,
                    admitted=admitted,
                    tokens=self.shape.horizon,
                    loss=base * (1 + last),
                    baseline_loss=base,
                    loss_gap=last,
                    suspiciously_low=last < -0.01,
                    gaps=gaps,
                )
            )
        return r.ScreenRecord(
            inputs={},
            baseline=self.base,
            tolerance=0.01,
            measured_on="probe of training documents",
            verdicts=tuple(verdicts),
        )

    def row(
        self,
        name: str,
        label: str,
        branches,
        *,
        k=None,
        horizon=None,
        rule=Select.TOP_K,
        scheme=Coefficients.EQUAL,
        setting=None,
    ) -> r.RowRecord:
        pools = [self.pool(b) for b in branches]
        weights = dict(soup_row(pools, k=k, rule=rule, scheme=scheme, horizon=horizon, name=name).weights)
        limit = horizon or self.shape.horizon
        return r.RowRecord(
            name=name,
            label=label,
            strategy=name.split("/")[0],
            setting=setting,
            select=rule.value,
            coefficients=scheme.value,
            k=k,
            horizon=limit,
            budget_tokens=limit * len(branches),
            branches=tuple(branches),
            weights=weights,
            validation_loss=self.bowl.loss(weights),
            validation_accuracy=self.bowl.accuracy(weights),
            chosen_on=r.ChosenOn(
                split=Split.VALIDATION, signal=r.Signal.LOSS, free=("k",), among=9, score=self.bowl.loss(weights)
            ),
        )

    def pool(self, branch: str) -> Pool:
        return Pool(
            branch=branch,
            candidates=tuple(
                Candidate(key=k, branch=branch, tokens=self.bowl.tokens[k], val_loss=self.bowl.loss({k: 1.0}))
                for k in self.bowl.keys[branch]
            ),
        )

    def ks(self) -> list[int]:
        return [k for k in (1, 2, 3, 4, 6, 8, 12) if k <= self.shape.checkpoints]

    def best_k(self, branches, horizon=None) -> int:
        most = self.shape.checkpoints if horizon is None else self.shape.checkpoints * horizon // self.shape.horizon
        options = [k for k in self.ks() if k <= most]
        return min(options, key=lambda k: self.row("x", "x", branches, k=k, horizon=horizon).validation_loss or 0)

    def rows(self) -> r.RowsRecord:
        limited = self.shape.horizon // len(self.ok)
        limited = max(self.bowl.tokens[k] for k in self.bowl.keys[self.ok[0]] if self.bowl.tokens[k] <= limited)
        best = min(self.ok, key=lambda b: self.row("x", "x", [b], k=self.best_k([b])).validation_loss or 0)
        rows = [self.row("raw-best", "best raw checkpoint", [best], k=1)]
        rows += [self.row(f"single/{b}", f"{b} Merge", [b], k=self.best_k([b])) for b in self.ok]
        for s, h, name in ((Setting.LIMITED, limited, "Limited"), (Setting.EXTENDED, None, "Extended")):
            low = s.value
            rows.append(
                self.row(
                    f"single-merge/{low}", f"Single-Trajectory Merge ({name})", [best], k=self.best_k([best]), setting=s
                )
            )
            if len(self.ok) > 1:
                rows.append(
                    self.row(
                        f"model-soup/{low}", f"Model Soup ({name})", self.ok, rule=Select.FINAL, horizon=h, setting=s
                    )
                )
                rows.append(
                    self.row(
                        f"trajectory-soup/{low}",
                        f"Trajectory Soup ({name})",
                        self.ok,
                        k=self.best_k(self.ok, h),
                        horizon=h,
                        setting=s,
                    )
                )
        self._rows = {row.name: row for row in rows}
        return r.RowsRecord(inputs={}, rows=tuple(rows))

    def evaluations(self) -> r.EvaluationsRecord:
        found = []
        for row in self._rows.values():
            weights = dict(row.weights)
            loss, overall = self.bowl.loss(weights) + 0.004, self.bowl.accuracy(weights)
            found.append(
                r.Evaluation(
                    row=row.name,
                    split=Split.TEST,
                    loss=r.Estimate(value=loss, low=loss - 0.012, high=loss + 0.012, count=2000),
                    overall_average=r.Estimate(value=overall, low=overall - 0.006, high=overall + 0.006, count=4100),
                    categories=self.bowl.categories(weights),
                    sources={"web": loss + 0.2, "books": loss, "code": loss - 0.7},
                    seeds=(0,),
                )
            )
        return r.EvaluationsRecord(inputs={}, evaluations=tuple(found))

    def compare(self, model: str, reference: str, signal: r.Signal, half: float) -> r.ComparisonRecord:
        a, b = dict(self._rows[model].weights), dict(self._rows[reference].weights)
        of = self.bowl.loss if signal is r.Signal.LOSS else self.bowl.accuracy
        value = of(a) - of(b)
        return r.ComparisonRecord(
            name=f"{model} vs {reference} {signal.value}",
            question=f"does {model} beat {reference}?",
            model=model,
            reference=reference,
            signal=signal,
            split=Split.TEST,
            difference=value,
            low=value - half,
            high=value + half,
            probability_of_improvement=0.99,
            within_noise=abs(value) <= half,
            count=2000,
            matched="the same horizon per branch",
        )

    def comparisons(self) -> r.ComparisonsRecord:
        pairs = [
            (name, f"single-merge/{name.split('/')[1]}")
            for name in self._rows
            if name.split("/")[0] in ("model-soup", "trajectory-soup", "full-soup")
        ]
        if len(self.ok) > 1:
            pairs.append(("trajectory-soup/extended", "model-soup/extended"))
        found = [
            self.compare(a, b, s, h)
            for s, h in ((r.Signal.LOSS, 0.0016), (r.Signal.ACCURACY, 0.0019))
            for a, b in pairs
        ]
        return r.ComparisonsRecord(inputs={}, level=0.95, resamples=2000, comparisons=tuple(found))

    def answer(self) -> r.AnswerRecord | None:
        if len(self.ok) < 2:
            return None
        soup, single = "trajectory-soup/extended", "single-merge/extended"
        loss = self.compare(soup, single, r.Signal.LOSS, 0.0016)
        return r.AnswerRecord(
            inputs={},
            soup=soup,
            single=single,
            loss=loss,
            accuracy=self.compare(soup, single, r.Signal.ACCURACY, 0.0019),
            words=(f"Trajectory Soup changes the test loss by {loss.difference:+.4f} nats.",),
            soup_folder="soups/trajectory-soup-extended",
            seeds=(0,),
        )

    def point(self, row: r.RowRecord, series: str, x: float | str) -> r.SweepPoint:
        weights = dict(row.weights)
        return r.SweepPoint(
            row=row.name,
            series=series,
            x=x,
            strategy=row.strategy,
            setting=row.setting,
            weights=weights,
            k=row.k,
            n_branches=len(row.branches),
            merge_size=len(weights),
            horizon=row.horizon,
            budget_tokens=row.budget_tokens,
            branches=row.branches,
            chosen_on=row.chosen_on,
            validation_loss=row.validation_loss,
            validation_accuracy=row.validation_accuracy,
            test_loss=r.Estimate(value=self.bowl.loss(weights) + 0.004, low=None, high=None, count=2000),
            test_accuracy=r.Estimate(value=self.bowl.accuracy(weights), count=4100),
            validation_categories=self.bowl.categories(weights),
            test_categories=self.bowl.categories(weights),
        )

    def sweeps(self) -> dict[str, r.SweepRecord]:
        ok, shape = self.ok, self.shape
        every = max(shape.checkpoints // 6, 1)
        horizons, scaling, coefficients, selections, allocation, sampling, between = [], [], [], [], [], [], []
        for i in range(every, shape.checkpoints + 1, every):
            h = shape.horizon * i // shape.checkpoints
            single = self.row(f"horizons/single/{ok[0]}@{h}", "single", ok[:1], k=self.best_k(ok[:1], h), horizon=h)
            horizons.append(self.point(single, "Single-Trajectory Merge", h))
            if len(ok) > 1:
                model = self.row(f"horizons/model-soup/extended@{h}", "model soup", ok, rule=Select.FINAL, horizon=h)
                soup = self.row(f"horizons/trajectory-soup/extended@{h}", "soup", ok, k=self.best_k(ok, h), horizon=h)
                horizons += [self.point(model, "Model Soup", h), self.point(soup, "Trajectory Soup", h)]
        for n in range(1, len(ok) + 1):
            for names in itertools.combinations(ok, n):
                for k in self.ks():
                    row = self.row(f"scaling/{'+'.join(names)}/{k}", f"N={n} K={k}", names, k=k)
                    scaling.append(self.point(row, f"N = {n}", k))
        full = {"horizons": horizons, "scaling": scaling}
        if len(ok) > 1:
            k = min(8, shape.checkpoints)
            for scheme in Coefficients:
                row = self.row(f"coefficients/{scheme.value}", scheme.value, ok, k=k, scheme=scheme)
                coefficients.append(self.point(row, "coefficients", scheme.value))
            for rule in (Select.TOP_K, Select.GLOBAL, Select.TAIL_K, Select.ALL):
                row = self.row(
                    f"selections/{rule.value}", rule.value, ok, rule=rule, k=None if rule is Select.ALL else k
                )
                selections.append(self.point(row, "selection", rule.value))
            for share in (0.125, 0.25, 0.5, 0.75, 0.875):
                a = self.row("x", "x", ok[:1], k=k).weights
                b = self.row("x", "x", ok[1:2], k=k).weights
                mixed = {**{c: w * share for c, w in a.items()}, **{c: w * (1 - share) for c, w in b.items()}}
                row = self.row(f"allocation/{share}", "x", ok[:2], k=k)
                row = r.RowRecord(
                    **{
                        **{f: getattr(row, f) for f in row.__slots__},
                        "weights": mixed,
                        "validation_loss": self.bowl.loss(mixed),
                    }
                )
                allocation.append(self.point(row, f"{ok[0]}:{ok[1]}", f"{round(share * 16)}:{round((1 - share) * 16)}"))
            for step in (1, 2):
                for names in (ok[:1], ok[1:2], ok[:2]):
                    row = self.row(f"sampling/{'+'.join(names)}/{step}", "x", names, k=min(4 * step, k))
                    sampling.append(self.point(row, " + ".join(names), f"every {step}"))
            for a, b in itertools.combinations(ok, 2):
                ends = [self.row("x", "x", [name], k=k).weights for name in (a, b)]
                for lam in (0.0, 0.25, 0.5, 0.75, 1.0):
                    mixed = {
                        **{c: w * (1 - lam) for c, w in ends[0].items()},
                        **{c: w * lam for c, w in ends[1].items()},
                    }
                    row = self.row(f"interpolation/{a}+{b}/{lam}", "x", (a, b), k=k)
                    row = r.RowRecord(
                        **{
                            **{f: getattr(row, f) for f in row.__slots__},
                            "weights": mixed,
                            "validation_loss": self.bowl.loss(mixed),
                        }
                    )
                    between.append(self.point(row, f"{a}+{b}", lam))
            full |= {
                "coefficients": coefficients,
                "selections": selections,
                "allocation": allocation,
                "sampling": sampling,
                "interpolation": between,
            }
        return {
            name: r.SweepRecord(
                inputs={}, name=name, title=name.capitalize(), paper="fig:x", x_label=name, points=tuple(points)
            )
            for name, points in full.items()
        }

    def geometry(self) -> r.GeometryRecord:
        ok = self.ok
        last = {b: np.mean([self.bowl.x[k] for k in self.bowl.keys[b][-4:]], axis=0) - self.bowl.fork for b in ok}
        unit = {b: v / np.linalg.norm(v) for b, v in last.items()}
        cosines = tuple(tuple(float(unit[a] @ unit[b]) for b in ok) for a in ok)
        keys = [k for b in ok for k in self.bowl.keys[b]]
        x = np.array([self.bowl.x[k] for k in keys])
        _, s, vt = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
        share = s**2 / np.sum(s**2)
        flat = (x - x.mean(axis=0)) @ vt[:2].T
        points = [
            r.ProjectedPoint(
                name=k,
                kind="checkpoint",
                branch=self.bowl.branch_of(k),
                tokens=self.bowl.tokens[k],
                x=float(p[0]),
                y=float(p[1]),
            )
            for k, p in zip(keys, flat, strict=True)
        ]
        window = min(4, self.shape.checkpoints)
        for b in ok:
            own = self.bowl.keys[b]
            for i in range(window, len(own) + 1, max(len(own) // 6, 1)):
                p = (np.mean([self.bowl.x[k] for k in own[i - window : i]], axis=0) - x.mean(axis=0)) @ vt[:2].T
                points.append(
                    r.ProjectedPoint(
                        name=f"anchor/{b}/{i}",
                        kind="anchor",
                        branch=b,
                        tokens=self.bowl.tokens[own[i - 1]],
                        x=float(p[0]),
                        y=float(p[1]),
                    )
                )
        for row in self._rows.values():
            if row.name.startswith("trajectory-soup"):
                p = (sum(w * self.bowl.x[k] for k, w in row.weights.items()) - x.mean(axis=0)) @ vt[:2].T
                points.append(
                    r.ProjectedPoint(
                        name=row.name, kind="soup", branch=None, tokens=row.horizon, x=float(p[0]), y=float(p[1])
                    )
                )
        f = (self.bowl.fork - x.mean(axis=0)) @ vt[:2].T
        points.append(
            r.ProjectedPoint(name="fork point", kind="fork point", branch=None, tokens=0, x=float(f[0]), y=float(f[1]))
        )
        return r.GeometryRecord(
            inputs={},
            window=4,
            interval=(0, self.shape.horizon),
            directions=tuple(
                r.BranchDirection(branch=b, variance_share=0.7, net_displacement=0.5, points=20) for b in ok
            ),
            branches=tuple(ok),
            cosines=cosines,
            angles=tuple(tuple(math.degrees(math.acos(max(-1, min(1, c)))) for c in row) for row in cosines),
            displacements={},
            plane_variance_share=(float(share[0]), float(share[1])),
            plane=tuple(points),
        )
