"""What branches and experts read of the corpus: sources that it has, and enough of each."""

from __future__ import annotations

from trajsoup.core.recipe import Sources
from trajsoup.errors import StudyError
from trajsoup.lm.corpus import Corpus
from trajsoup.study.file.study import Study


def require_sources(study: Study, corpus: Corpus, *, horizon: int, sequence_length: int) -> None:
    """Refuse sources that the corpus does not have, or has too little of, before anything is trained."""
    from trajsoup.lm.mixture import of_source

    shares = {f"branch {name!r}": recipe.sources for name, recipe in study.recipes.items()} | _experts(study, corpus)
    for branch, sources in shares.items():
        for source, share in sources:
            tokens = of_source(corpus.train, source).n_tokens
            read = share * horizon / max(tokens // sequence_length * sequence_length, 1)
            if tokens < sequence_length or read > study.max_epochs:
                raise StudyError(
                    f"{branch} would read the {tokens:,} tokens of {source!r} {read:,.1f} times, more "
                    f"than max_epochs ({study.max_epochs:g}): add documents, lower its weight, or raise max_epochs"
                )
    if study.evaluation.probe_source is not None:
        of_source(corpus.train, study.evaluation.probe_source)


def _experts(study: Study, corpus: Corpus) -> dict[str, Sources]:
    """What the experts of neighbours read, in shares of the whole horizon."""
    from trajsoup.lm.mixture import source_families

    found: dict[str, Sources] = {}
    wanted = study.neighbours
    for asked in () if wanted is None else (wanted.branch_train_merge, wanted.branch_train_mix):
        if asked is not None:
            names = asked.sources or source_families(corpus.train)
            if len(names) < 2:
                raise StudyError(
                    f"neighbours: experts need two sources of documents, and the corpus has {', '.join(names) or 'none'}: "
                    "give its documents a source (corpus.source_field), or leave the method out"
                )
            found |= {f"the expert on {name}": ((name, 1 / len(names)),) for name in names}
    return found
