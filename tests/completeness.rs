//! What the log holds of a run, on the real path: fetched after the verdict, checked offline, and a monitor that finds
//! nothing wrong.

use tests::workshop::Workshop;

#[test]
fn one_prediction_of_the_run_is_shown_offline_and_a_monitor_is_silent() {
    let (shop, log) = Workshop::ready();
    let monitor = format!("monitor --ledger {} --log-key log/log.pub --state monitor --once", log.url);
    assert_eq!(shop.run("client", &monitor).expect_code(0).stdout, "");
    shop.reconcile("run", &log, "--no-replay").expect_code(0);
    let run = shop.run_id("run");
    let fetch = format!(
        "completeness {run} --ledger {} --log-key log/log.pub --out run.completeness --entries",
        log.url
    );
    let fetched = shop.run("client", &fetch).expect_code(0);
    // Run, prediction, two receipts, opening, register, verdict; then the register that is shown.
    fetched
        .expect_text("below entry 8 the log holds 7 statements of run")
        .expect_text("with the list of entries");
    let ended = shop.run("client", &monitor).expect_code(0);
    assert_eq!(ended.stdout, "");
    ended.expect_text("to size 9, root ").expect_text("nothing found");
    drop(log);
    let offline = "completeness run.completeness --log-key log/log.pub --predictor-key predictor.pub";
    let ended = shop.run("client", offline).expect_code(0);
    ended.expect_text("the predictor predicted [ok]: steps 0..3 in entry 2, and nothing else");
}
