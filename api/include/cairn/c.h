// SPDX-License-Identifier: Apache-2.0
//
// Cairn in C: C11, and C++ as well. Each call is its C++ namesake, Branch::AppendSync being
// cairn_branch_append_sync; docs/c.md has a table of both. The comments here say what each call
// does, what it blocks on and how it fails; the C++ header has the details. These are the
// conventions that hold everywhere:
//
//  1. Errors. A call that can fail returns a cairn_code: CAIRN_OK, or what a program branches on.
//     `error`, the last argument, may be NULL; else *error becomes NULL, or an error to be freed
//     with cairn_error_free, whatever it was before. Where there is no memory for it *error is a
//     constant of code CAIRN_OUT_OF_MEMORY; what the call returns is true also then. Comments list
//     the codes of a call, but not those that any call may give: CAIRN_INVALID_ARGUMENT (convention
//     5, 8 or 10), CAIRN_INVALID_STATE (3 or 11) and CAIRN_OUT_OF_MEMORY. "Errors of a change" and
//     "errors of the index" are explained at the top of cairn/c/branch.h.
//  2. Ownership. An object that a call gives through a pointer to a pointer is the caller's, who
//     frees it with the `free` of its type; the pointer is NULL after an error, in an array each of
//     them. Memory that a struct points to belongs to the struct: never free a part. `free` takes
//     NULL.
//  3. Lifetime. An argument is borrowed until the call returns, and copied if the library needs it
//     longer. Memory is needed longer only where a comment says "borrowed until": tokens, KV,
//     tables, keys and values, events of a GPU, and the layers' progress, but never a struct or an
//     array of pointers. Handles may be freed in any order. They do not keep a store open: after
//     cairn_store_close, or _free, each call is CAIRN_INVALID_STATE, but those that report the
//     store's last state: cairn_store_models, _metrics, _health, its texts, and the counts of
//     sparse and shadow sessions.
//  4. Threads. Calls may be made from any thread, at once, on one handle, unless its comment says
//     otherwise; `free` alone has no other call of the same handle beside it. No thread exists
//     before a store is opened.
//  5. NULL. A handle or an output that is NULL is CAIRN_INVALID_ARGUMENT naming it, unless its
//     comment allows it. Options that are NULL are all defaults. A function without a cairn_code
//     returns 0, false or NULL for a NULL handle.
//  6. Texts end with NUL; NULL is the empty text, but in an argument `path` or `name`, which must
//     be given. Names are bytes that the library does not interpret. Bytes that may hold a NUL are
//     a cairn_bytes.
//  7. Blocking. A call blocks only where its comment says so, and until `timeout_ns` at most where
//     it has one: UINT64_MAX is for ever, 0 waits for nothing. Where it does not, it may still take
//     a lock of the store for a moment, and read the index of the store for a branch that was not
//     used for long.
//  8. Sizes of structs. struct_size is the first field of each struct that may grow. Set it by
//     cairn_X_init(&x, sizeof x), which sets all defaults, or by hand; zeros elsewhere are what the
//     fields say. A field that the program was built without keeps its default; one that the
//     library does not know is CAIRN_INVALID_ARGUMENT, unless it is zero. So a program and a
//     library of one major version fit each other. In an array all elements have the same
//     struct_size. In a struct that a call only writes to only struct_size need be set; fields that
//     the library does not know become zero. In structs that the library makes it says how far they
//     reach. Comments behind fields name defaults that are not 0.
//  9. Callbacks may come from threads of the store. They must not block, call into the store that
//     they come from, throw or jump. A listener's context lives until the store is closed. That of
//     the allocator lives until the last handle of the store is freed, drafts included: they hold
//     memory of it. That of `progress` lives until its call returns; that of `released` until it
//     has been called, which may be after the ticket is over, cancelled or freed, but not after
//     cairn_store_close has returned.
// 10. Enumerations are 32-bit integers. A value that does not exist is CAIRN_INVALID_ARGUMENT
//     naming the field. Numbers never change their meaning.
// 11. fork(). A store does not survive it: in the child every call of it is CAIRN_INVALID_STATE.
//     Handles may be freed there.
// 12. No exception leaves the library, and no symbol that does not begin with cairn_ is C's.
// 13. A crash leaves each change whole or not at all. How many acknowledged changes it may lose
//     follows from their cairn_durability (cairn/options.h): none at CAIRN_DURABILITY_POWER.
#pragma once

#include "cairn/c/base.h"
#include "cairn/c/blend.h"
#include "cairn/c/branch.h"
#include "cairn/c/completion.h"
#include "cairn/c/export.h"
#include "cairn/c/find.h"
#include "cairn/c/gpu.h"
#include "cairn/c/kv_slots.h"
#include "cairn/c/metrics.h"
#include "cairn/c/model.h"
#include "cairn/c/objects.h"
#include "cairn/c/options.h"
#include "cairn/c/restore.h"
#include "cairn/c/shadow.h"
#include "cairn/c/shared_memory.h"
#include "cairn/c/sparse.h"
#include "cairn/c/store.h"
#include "cairn/c/view.h"
