//! The pools of reserved huge pages: shown, resized, mounted and made to survive a reboot. Tests restore what they change.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;

use crate::support::{Program, hugepilot, list, number, wait_until};

crate::trials!(
    a_pool_grows_and_shrinks_back,
    least_and_most_are_kept_apart,
    one_node_has_its_part,
    a_page_of_1_gib_is_had_or_it_is_said_why_not,
    pages_of_1_gib_have_a_least_and_no_most_where_none_are_taken_on_demand,
    promised_pages_are_free_but_not_available,
    a_pool_in_use_shrinks_as_programs_let_go,
    a_pool_is_mounted_and_unmounted,
    what_lasts_is_shown_and_not_written,
    what_was_written_is_told_though_not_all_could_be,
    what_is_not_there_is_named,
    a_pool_beyond_memory_falls_short_and_says_why,
);

const TWO: u64 = 2 << 20;
const ONE: u64 = 1 << 30;

/// The original settings of the pools; restored when dropped.
struct Pools(Vec<(String, String)>);

impl Pools {
    fn kept() -> Self {
        let mut found = Vec::new();
        for size in ["2048", "1048576"] {
            for name in ["nr_hugepages", "nr_overcommit_hugepages"] {
                let path = format!("/sys/kernel/mm/hugepages/hugepages-{size}kB/{name}");
                if let Ok(value) = fs::read_to_string(&path) {
                    found.push((path, value.trim().to_owned()));
                }
            }
        }
        Self(found)
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            // Pools of 1 GiB refuse any write of overcommit, even of the present value.
            if fs::read_to_string(path).is_ok_and(|now| now.trim() != value) {
                fs::write(path, value).expect("the pool as it was");
            }
        }
    }
}

/// The pool with this page size, as `hugepilot pool` shows it; None if the kernel has none.
fn pool_of(size: u64) -> Option<Value> {
    let json = hugepilot("pool --json").json();
    list(&json, "pools").iter().find(|pool| number(pool, "page_size_bytes") == size).cloned()
}

fn pool_of_two() -> Value {
    pool_of(TWO).expect("a pool of 2 MiB pages")
}

/// Makes one change, which must succeed, and returns the result.
fn change(words: &str) -> Value {
    let json = hugepilot(&format!("pool set {words} --json")).json();
    let changes = list(&json, "changes");
    assert_eq!((changes.len(), &changes[0]["ended"]), (1, &Value::from("done")), "{json}");
    changes[0].clone()
}

fn a_pool_grows_and_shrinks_back() {
    let _pools = Pools::kept();
    let before = number(&pool_of_two(), "persistent");
    let planned = hugepilot("pool set 2M=+96 --dry-run --json").json();
    assert_eq!(number(&list(&planned, "changes")[0], "wanted"), before + 96, "{planned}");
    assert_eq!(number(&planned, "needed_bytes"), 96 * TWO, "{planned}");
    assert_eq!(number(&pool_of_two(), "persistent"), before);
    let ran = hugepilot("pool set 2M=+96 --json");
    if ran.stdout.contains("\"no_more\"") {
        return eprintln!("96 pages are not to be had here: {}", ran.stdout);
    }
    let grown = list(&ran.json(), "changes")[0].clone();
    assert_eq!([number(&grown, "pages"), number(&grown, "wanted")], [before + 96; 2]);
    assert_eq!(number(&grown["before"], "persistent"), before);
    assert_eq!(number(&grown["after"], "persistent"), before + 96);
    assert_eq!(number(&pool_of_two(), "persistent"), before + 96);
    assert!(number(&grown, "longest_step_ns") > 0 && grown["obstacles"].is_null(), "{grown}");
    let ran = hugepilot("pool set 2M=-192M");
    assert!(ran.status.success() && ran.stdout.starts_with(&format!("2M: {before} page")), "{ran:?}");
    assert_eq!(number(&pool_of_two(), "persistent"), before);
}

fn least_and_most_are_kept_apart() {
    let _pools = Pools::kept();
    let (least, overcommit) = (number(&pool_of_two(), "persistent"), number(&pool_of_two(), "overcommit"));
    let most = change("2M=+5 --max");
    assert_eq!([number(&most["after"], "persistent"), number(&most["after"], "overcommit")], [least, overcommit + 5]);
    let grown = change("2M=+2 --min");
    assert_eq!(
        [number(&grown["after"], "persistent"), number(&grown["after"], "overcommit")],
        [least + 2, overcommit + 3]
    );
}

fn one_node_has_its_part() {
    let _pools = Pools::kept();
    let on_node = || {
        let pool = pool_of_two();
        let nodes = list(&pool, "nodes").to_vec();
        nodes.iter().find(|node| node["node"] == 0).map(|node| number(node, "total"))
    };
    let Some(before) = on_node() else {
        return eprintln!("this kernel has no NUMA: not tested here");
    };
    assert_eq!(change("2M=+4 --node 0")["node"], 0);
    assert_eq!(on_node(), Some(before + 4));
    hugepilot("pool set 2M=+1 --node 4000").assert_fails_with(&["node 4000", "name one of 0"]);
}

fn a_page_of_1_gib_is_had_or_it_is_said_why_not() {
    let _pools = Pools::kept();
    let Some(pool) = pool_of(ONE) else {
        return hugepilot("pool set 1G=1").assert_fails_with(&["1 GiB", "There are pools of"]);
    };
    let before = number(&pool, "persistent");
    let ran = hugepilot("pool set 1G=+1 --time-limit 30s --json");
    if ran.status.success() {
        assert_eq!(number(&pool_of(ONE).expect("it was there"), "persistent"), before + 1);
        change("1G=-1");
    } else {
        assert!(ran.stdout.contains("\"giant\"") || ran.stderr.contains("hugepagesz=1G"), "{ran:?}");
        // Pages that hugepilot gave up waiting for may have been reserved in the end.
        hugepilot(&format!("pool set 1G={before}"));
    }
    assert_eq!(number(&pool_of(ONE).expect("it was there"), "persistent"), before);
}

fn pages_of_1_gib_have_a_least_and_no_most_where_none_are_taken_on_demand() {
    let _pools = Pools::kept();
    let Some(pool) = pool_of(ONE) else { return eprintln!("the processor has no pages of 1 GiB: not tested here") };
    let (least, overcommit) = (number(&pool, "persistent"), number(&pool, "overcommit"));
    let kept = change(&format!("1G={least} --min"));
    assert_eq!(number(&kept["after"], "overcommit"), overcommit);
    let ran = hugepilot("pool set 1G=+2 --max");
    let now = pool_of(ONE).expect("it was there");
    assert_eq!(number(&now, "persistent"), least);
    if ran.status.success() {
        assert_eq!(number(&now, "overcommit"), overcommit + 2);
    } else {
        ran.assert_fails_with(&["1 GiB cannot be taken on demand", "nothing was changed", "pool set 1G=N"]);
        assert_eq!(number(&now, "overcommit"), overcommit);
    }
}

fn promised_pages_are_free_but_not_available() {
    let _pools = Pools::kept();
    let most = number(&pool_of_two(), "persistent");
    change(&format!("2M={most} --max"));
    change("2M=+8");
    let available = number(&pool_of_two(), "available");
    let program = Program::start(&format!("pool={} ready sleep=600s", available * TWO));
    let pool = pool_of_two();
    assert_eq!((number(&pool, "available"), pool["all_promised"].as_bool()), (0, Some(true)), "{pool}");
    assert!(number(&pool, "free") >= available && number(&pool, "reserved") >= available, "{pool}");
    assert!(Program::try_start("pool=2M ready").is_none(), "what is promised was given to somebody else");
    let json = hugepilot("pool --json").json();
    let user = list(&json, "users").iter().find(|user| user["pid"] == program.pid).expect("it has pages promised");
    assert_eq!([number(user, "mapped_bytes"), number(user, "private_bytes")], [available * TWO, 0]);
    let text = hugepilot("pool").stdout;
    assert!(text.contains("yet none can be given out") && text.contains(&program.pid.to_string()), "{text}");
}

fn a_pool_in_use_shrinks_as_programs_let_go() {
    let _pools = Pools::kept();
    let before = pool_of_two();
    change("2M=+6");
    let program = Program::start("pool=8M fill ready sleep=600s");
    let json = hugepilot("pool --json").json();
    let user = list(&json, "users").iter().find(|user| user["pid"] == program.pid).expect("it has pages");
    assert_eq!(number(user, "private_bytes") + number(user, "shared_bytes"), 4 * TWO);
    // The four pages in use stay with the program, and count as surplus from now on.
    let ran = hugepilot("pool set 2M=0");
    assert!(ran.status.success() && ran.stdout.contains("surplus now"), "{ran:?}");
    assert!(number(&pool_of_two(), "surplus") >= 4);
    drop(program);
    wait_until("the surplus is gone", || number(&pool_of_two(), "total") == number(&before, "in_use"));
}

fn a_pool_is_mounted_and_unmounted() {
    let folder = tempfile::tempdir().expect("a folder");
    let point = folder.path().join("huge pages");
    let point = point.to_str().expect("UTF-8");
    let run = |words: &[&str]| {
        let ran = crate::support::finish(std::process::Command::new(crate::support::binary()).arg("pool").args(words));
        assert!(ran.status.success(), "{ran:?}");
        ran
    };
    let json = run(&["mount", "2M", point, "--size", "4M", "--owner", "7:8", "--mode", "1770", "--json"]).json();
    let expected = serde_json::json!({
        "version": 1, "report": "mount", "path": point, "page_size_bytes": TWO, "limit_bytes": 2 * TWO, "least_bytes": null, "uid": 7, "gid": 8,
        "mode": "1770"
    });
    assert_eq!(json, expected);
    let pools = hugepilot("pool --json").json();
    assert!(list(&pools, "mounts").iter().any(|mount| mount["path"] == point), "{pools}");
    let open = File::create(Path::new(point).join("a")).expect("a file in it");
    let busy =
        crate::support::finish(std::process::Command::new(crate::support::binary()).args(["pool", "unmount", point]));
    busy.assert_fails_with(&["cannot unmount", "somebody uses it"]);
    drop(open);
    assert!(run(&["unmount", point]).stdout.starts_with("unmounted "));
    assert!(Path::new(point).exists(), "a directory that somebody named stays");
}

fn what_lasts_is_shown_and_not_written() {
    let path = "/etc/sysctl.d/60-hugepilot-pool.conf";
    let found = fs::read_to_string(path).ok();
    let json = hugepilot("pool persist 2M=7777 --json").json();
    let file = list(&json, "files")
        .iter()
        .find(|file| file["path"] == path || file["path"].as_str().is_some_and(|path| path.contains("tmpfiles")));
    let diff = file.expect("a file for the pool")["diff"].as_str().expect("a difference").to_owned();
    assert!(diff.contains("7777") && json["applied"] == false, "{json}");
    assert_eq!(fs::read_to_string(path).ok(), found);
}

fn what_was_written_is_told_though_not_all_could_be() {
    // A private /etc, of which only a part is writable.
    let script = "mount -t tmpfs none /etc && mkdir /etc/sysctl.d /etc/tmpfiles.d && mount -t tmpfs -o ro none /etc/sysctl.d && \
                  mount -t tmpfs -o ro none /etc/tmpfiles.d && exec $HUGEPILOT pool persist 2M=5 --group 7 --apply";
    let mut command = std::process::Command::new("unshare");
    let ran = crate::support::finish(
        command.args(["--mount", "sh", "-c", script]).env("HUGEPILOT", crate::support::binary()),
    );
    assert_eq!(ran.stdout, "wrote /etc/security/limits.d/60-hugepilot-pool.conf\n", "{ran:?}");
    ran.assert_fails_with(&["not all files were written", "hugepilot-pool.conf", "can only be read"]);
}

fn what_is_not_there_is_named() {
    hugepilot("pool set 8M=1").assert_fails_with(&["8 MiB", "There are pools of 2M"]);
    hugepilot("pool set 2M=1 2M=2").assert_fails_with(&["named twice"]);
    hugepilot("pool mount 8M").assert_fails_with(&["8 MiB", "There are pools of"]);
    hugepilot("pool mount 2M /proc").assert_fails_with(&["/proc is a mount already"]);
    hugepilot("pool mount 2M --owner nobody-of-that-name").assert_fails_with(&["no user", "/etc/passwd", "getent"]);
    hugepilot("pool unmount /proc").assert_fails_with(&["/proc is no hugetlbfs mount"]);
    hugepilot("pool persist 2M=1 --group nobody-of-that-name").assert_fails_with(&["no group", "/etc/group", "getent"]);
}

fn a_pool_beyond_memory_falls_short_and_says_why() {
    if std::env::var_os("HUGEPILOT_VM").is_none() {
        return eprintln!("the machine is not the tests' own, as in tests/vm: not tested here");
    }
    let _pools = Pools::kept();
    let ran = hugepilot("pool set 1G=+4000 --time-limit 30s --make-room --json");
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let reasons = list(&list(&json, "changes")[0]["obstacles"], "reasons");
    assert_eq!(reasons, ["too_little_memory", "giant"], "{json}");
    assert!(number(&list(&json, "changes")[0], "cache_drops") > 0 || json.to_string().contains("time_up"), "{json}");
}
