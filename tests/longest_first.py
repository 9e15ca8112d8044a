"""The files that take longest, in the order in which `make test` begins them: all others fit into the gaps that these leave.

Those that wait much (clusters, browsers, processes that are killed) stand between those that compute. A file that is not
here is run after them, in its usual place.
"""

LONGEST_FIRST = (
    "tests/cluster/test_study_on_ray.py",
    "tests/study/test_seeds_at_once.py",
    "tests/report/test_browser.py",
    "tests/study/test_killed_run.py",
    "tests/engine/test_ray_gang.py",
    "tests/study/train/test_branches.py",
    "tests/engine/test_executors.py",
    "tests/study/stages/test_connectivity.py",
    "tests/merge/test_merge_together.py",
    "tests/engine/test_kernels.py",
    "tests/merge/test_merge_in_a_store.py",
    "tests/cli/test_push.py",
    "tests/lm/test_corpus.py",
    "tests/study/test_duration.py",
    "tests/engine/test_gram_ranges.py",
    "tests/study/test_run.py",
    "tests/report/test_page.py",
    "tests/cluster/test_store_on_ray.py",
    "tests/test_examples.py",
    "tests/study/train/test_forked.py",
    "tests/lm/test_trackers.py",
    "tests/study/neighbours/test_trained.py",
    "tests/engine/test_layout.py",
    "tests/cli/test_faults.py",
    "tests/study/test_keeping.py",
    "tests/fuzz/test_parsers.py",
    "tests/study/test_over_seeds.py",
    "tests/store/test_linear_time.py",
    "tests/report/test_live.py",
    "tests/lm/test_harness.py",
    "tests/study/test_study_in_a_store.py",
    "tests/study/test_apart.py",
    "tests/report/test_serve.py",
    "tests/cli/test_report.py",
    "tests/store/test_open_files.py",
    "tests/study/train/test_tasks.py",
)
