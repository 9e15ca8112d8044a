from trajsoup.core.threads import PASS_FLOPS_PER_THREAD, threads_for


def test_a_small_pass_gets_one_thread_whatever_its_share():
    assert {threads_for(pass_flops=5e9, share=share) for share in (1, 2, 64)} == {1}


def test_a_large_pass_gets_its_whole_share_and_no_more():
    assert threads_for(pass_flops=1e15, share=64) == 64


def test_between_them_a_thread_comes_with_every_unit_of_work():
    assert [threads_for(pass_flops=n * PASS_FLOPS_PER_THREAD, share=8) for n in (0.5, 1, 2, 3, 9)] == [1, 1, 2, 3, 8]
