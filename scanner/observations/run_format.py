"""The format of run files: what each number added, and what an older file says nothing of."""

# Run file format history:
#
# 1: header (settings, environment, planned rows), observations, closing.
# 2: controls, sentinels, costs; warn_only; execution groups, severity and alerts of an observation. Read with the
#    defaults below a file of format 1 says what it always said: quiet executions, and nothing known of the rest.
# 3: overloads that the build has and that each row reaches; where a row is from (source, provoked, recipe, samples), what
#    was enumerated, and the settings of both. A file of format 1 or 2 knows of no overloads: "not recorded".
# 4: rows that are not to be believed, because a control behind them answered wrongly; the mode "unfilled"; the digest of the
#    file that declares a row's spec, empty in older files, of which none is gone on with; threads of an observation, and a
#    further process of mode off. Of a file of an earlier format it is not known how many threads worked, so that none of
#    its rows is called serial.
# 5: entries of databases in lines of their own behind the header, whose rows belong to the plan; digests begin with their
#    kind, and those without one, of older files, are never held against them; the worker that made an observation or a
#    sentinel, where several worked side by side; TF32 and ROCm of an environment, not known of older files; the mode
#    "no_workspace".
# 6: the plan, by its digest and its groups of rows, and the shard of it that a file holds; merged files, whose parts are
#    files of one plan. Older files name no plan, and are not merged. Modes that a scan was asked for beside off and on;
#    launches of Triton kernels, and the perturbation "order"; what rows give with other threads, batches and layouts, where a
#    scan asked for that; which rows are compiled, and what a reference gives that holds in every mode; further processes
#    of on and unfilled.
# 7: scans of a simulated GPU: the setting, the device, its perturbations, and of an observation the schedule that shows
#    a difference, how it is to the CPU, and the calls of libraries. No older file has any.
# 8: samples of outputs. Of older files it is not known how far bits moved.
# 9: other spellings of ops, how they are to the op, and its time beside theirs. No older file has any.
FORMAT = 9
