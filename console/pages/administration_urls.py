"""The addresses of administration."""

from __future__ import annotations

from django.urls import URLPattern, path

from console.pages import administration, entrance

urlpatterns: list[URLPattern] = [
    path("people/", administration.person_list, name="person_list"),
    path("people/new/", administration.person_new, name="person_new"),
    path("people/<int:person_id>/", administration.person, name="person"),
    path("people/<int:person_id>/<slug:act>/", administration.person_act, name="person_act"),
    path("teams/", administration.team_list, name="team_list"),
    path("teams/new/", administration.team_new, name="team_new"),
    path("account-access/", administration.account_access_list, name="account_access_list"),
    path("account-access/<str:account>/", administration.account_access, name="account_access"),
    path("tokens/", administration.token_list, name="token_list"),
    path("tokens/new/", administration.token_new, name="token_new"),
    path("tokens/revocation/", administration.token_revoke, name="token_revoke"),
    path("flows/", administration.flow_list, name="flow_list"),
    path("flows/<str:flow_id>/", administration.flow, name="flow"),
    path("login/invitation/<str:uid>/<str:token>/", entrance.invitation, name="invitation"),
]
