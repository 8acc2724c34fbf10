"""The addresses of the pages. The root's urls module includes these and names the error handlers."""

from __future__ import annotations

from django.urls import path

from console.pages import (
    case,
    declaring,
    desk,
    effects,
    environment,
    providers,
    queue,
    runs,
    saved_views,
    search,
    session,
)

urlpatterns = [
    path("", queue.queue, name="queue"),
    path("queue/news/", queue.queue_news, name="queue_news"),
    path("queue/next/", desk.queue_next, name="queue_next"),
    path("queue/views/", saved_views.view_save, name="view_save"),
    path("queue/views/<str:view_id>/removal/", saved_views.view_remove, name="view_remove"),
    path("cases/<str:case_id>/", case.case, name="case"),
    path("cases/<str:case_id>/desk/", desk.case_desk, name="case_desk"),
    path("cases/<str:case_id>/snooze/", desk.case_snooze, name="case_snooze"),
    path("cases/<str:case_id>/snooze/end/", desk.case_wake, name="case_wake"),
    path("cases/<str:case_id>/note/", desk.case_note, name="case_note"),
    path("cases/<str:case_id>/claim/", desk.case_claim, name="case_claim"),
    path("cases/<str:case_id>/claim/release/", desk.case_release, name="case_release"),
    path("cases/<str:case_id>/claim/takeover/", desk.case_takeover, name="case_takeover"),
    path("cases/<str:case_id>/decision/", case.case_decide, name="case_decide"),
    path("cases/<str:case_id>/lookup/", case.case_lookup, name="case_lookup"),
    path("cases/<str:case_id>/withdrawal/", case.case_withdraw, name="case_withdraw"),
    path("cases/<str:case_id>/live/", case.case_live, name="case_live"),
    path("cases/<str:case_id>/news/", case.case_news, name="case_news"),
    path("runs/", runs.run_list, name="run_list"),
    path("runs/<str:run_id>/", runs.run, name="run"),
    path("runs/<str:run_id>/lease/revocation/", runs.run_revoke, name="run_revoke"),
    path("effects/", effects.effects, name="effects"),
    path("providers/", providers.provider_list, name="provider_list"),
    path("providers/new/", declaring.provider_new, name="provider_new"),
    path("providers/<slug:slug>/", providers.provider, name="provider"),
    path("providers/<slug:slug>/lookup-test/", providers.provider_test, name="provider_test"),
    path("providers/<slug:slug>/tightening/", providers.provider_tighten, name="provider_tighten"),
    path("environment/", environment.environment, name="environment"),
    path("environment/answer/", environment.environment_answer, name="environment_answer"),
    path("environment/accounts/<slug:slug>/opening/", environment.environment_open, name="environment_open"),
    path("search/", search.search, name="search"),
    path("login/", session.SignIn.as_view(), name="login"),
    path("logout/", session.SignOut.as_view(), name="logout"),
    path("preferences/", session.preferences, name="preferences"),
    path("preferences/theme/", session.set_theme, name="theme"),
    path("live/", session.live, name="live"),
]
